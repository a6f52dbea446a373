"""What every test stands on: asyncio as the event loop, nothing of the user's own environment, and the real engine."""

import fcntl
import gc
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from bench.cache.tiny import tiny_model
from gateway.cli.app import run
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.fetch import map_bytes
from leaf_sdk.vocab import TokenMap, load_map
from tests.cases import IN_FULL
from tests.vocabularies import template_server, vocabulary_model

ROOT = Path(__file__).parent.parent
CHAT_TEMPLATES = Path(__file__).parent / "third_party" / "chat_templates"
MARKER = re.compile(
    r"<[|｜][^<>|｜\s'\"{}]+[|｜]>|\[/?[A-Z_]{3,}\]|<[|]?[a-z_:]+>|</[a-z_:]+>|<[a-z_]+[|]>|<\|\"\|>|〈\|[A-Z]+\|〉"
)

# How long an example takes, to try or to think up, says how busy the machine is, not whether the code is right.
settings.register_profile("fuzz", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same few examples each time: a suite that fails, fails because of a change. `make fuzz` looks for others.
settings.register_profile("suite", settings.get_profile("fuzz"), derandomize=True, max_examples=40)
settings.load_profile("fuzz" if IN_FULL else "suite")


# nohup ignores SIGHUP, and so would the gateways that tests start, which must reload or end by it as they do elsewhere.
# A handler, unlike an ignored signal, is not inherited, and the suite still survives its terminal.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers for each core, since tests wait for other processes half of the time; each takes a gigabyte."""
    return min(2 * (os.cpu_count() or 1), 6)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Collect without looking for garbage: the tests themselves are none, and there are more with every look."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave out from now on what was collected, which a look at all objects would take half a second for."""
    gc.freeze()
    gc.enable()


class Ran(NamedTuple):
    """What one command line did."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command line."""

    def go(*words: str | Path) -> Ran:
        code = run([str(word) for word in words])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return go


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("CODEC_", "NO_COLOR", "FORCE_COLOR"))]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """Commands that run in this process say where the whole process logs, and from which level on."""
    loggers = [
        logging.getLogger(name) for name in (None, "uvicorn", "uvicorn.error", "uvicorn.access", "mcp", "httpx2")
    ]
    before = [(each, each.level, list(each.handlers), each.propagate) for each in loggers]
    yield
    for logger, level, handlers, propagate in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate


@pytest.fixture(scope="session", autouse=True)
def _folders_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled maps and pins are kept; those of tests are not to lie among the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def model_map_bytes() -> bytes:
    """The token map of the packaged SmolLM2 model, built from its GGUF file."""
    return map_bytes(packaged_model())


@pytest.fixture(scope="session")
def model_map(model_map_bytes: bytes) -> TokenMap:
    return load_map(model_map_bytes)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.fixture(scope="session")
def one_layer(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A model of one layer and random weights with the packaged model's vocabulary: an engine answers at once.

    It writes whole characters, as trained models do: of others, the engine does not tell all ids. All processes of the
    suite share the file, which takes two seconds to make.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    path = folder / "one_layer.gguf"
    with (folder / "one_layer.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            # Asked for here: a process that finds the file does without the map.
            model_map: TokenMap = request.getfixturevalue("model_map")
            parts = [each for each in range(len(model_map)) if not _is_text(model_map.token_bytes(each))]
            unfinished = folder / "one_layer.part"
            unfinished.write_bytes(tiny_model(packaged_model().read_bytes(), unlikely=parts))
            unfinished.replace(path)
    return path


@contextmanager
def llama_server(model: Path) -> Iterator[str]:
    """The address of a real llama.cpp server with this model."""
    settings = {"model": str(model), "host": "127.0.0.1", "port": 0, "context": 4096, "slots": 2, "threads": 1}
    command = [sys.executable, "-m", "gateway.engine.embedded.child_process", json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        yield child.stdout.readline().decode().strip()
        child.kill()


@pytest.fixture(scope="session")
def engine_url(one_layer: Path) -> Iterator[str]:
    """One with the model of one layer, shared by the tests that only ask it things."""
    with llama_server(one_layer) as url:
        yield url


@pytest.fixture(scope="session")
def trained_engine_url() -> Iterator[str]:
    """One with the packaged model, for tests that depend on what a model writes or how long it takes."""
    with llama_server(packaged_model()) as url:
        yield url


@contextmanager
def vllm_wire(engine_url: str, *flags: str) -> Iterator[str]:
    """The address of a server that speaks vLLM's wire in front of a real llama.cpp server."""
    program = "tests.standins.vllm_wire_over_llama_cpp"
    command = [sys.executable, "-m", program, engine_url, str(packaged_model()), *flags]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        yield child.stdout.readline().decode().strip()
        child.kill()


@pytest.fixture(scope="session")
def vllm_url(engine_url: str) -> Iterator[str]:
    with vllm_wire(engine_url) as url:
        yield url


@pytest.fixture(scope="session")
def old_vllm_url(engine_url: str) -> Iterator[str]:
    """One that forbids the endpoint which takes ids and nothing else."""
    with vllm_wire(engine_url, "--old") as url:
        yield url


@pytest.fixture(scope="session")
def markers_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is a vocabulary alone: every byte, and as control tokens all markers of the chat templates."""
    # Tags named as JSON Schema's words are would be no markers of any model.
    texts = "\n".join(path.read_text() for path in sorted(CHAT_TEMPLATES.glob("*.jinja")))
    plain = re.compile("</?(?:type|enum|required|description|items|name|parameters|any|key|item)>")
    markers = sorted({m for m in MARKER.findall(texts) if not plain.fullmatch(m)} | {"<no_bos>", "<no_eos>"})
    path = tmp_path_factory.mktemp("markers") / "markers.gguf"
    path.write_bytes(vocabulary_model(markers, [3] * len(markers), "<no_bos>", "<no_eos>"))
    return path


@pytest.fixture(scope="session")
def markers_map(markers_model: Path) -> TokenMap:
    return load_map(map_bytes(markers_model))


@pytest.fixture(scope="session")
def serve_template(markers_model: Path) -> Iterator[Callable[[str], str]]:
    """The address of a real llama.cpp server with a chat template of `third_party`; it ends with the next one asked."""
    with template_server(markers_model) as serve:
        yield lambda name: serve(CHAT_TEMPLATES / f"{name}.jinja")


@pytest.fixture(scope="session")
def is_running() -> Callable[[int], bool]:
    """Whether a process is there and no zombie; one that was adopted and not yet reaped is gone for us."""

    def check(pid: int) -> bool:
        try:
            os.kill(pid, 0)
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except ProcessLookupError:
            return False
        except FileNotFoundError:
            # Gone in this moment, or a system without /proc.
            return not Path("/proc/self/stat").exists()

    return check
