"""A gateway as an operator runs it: `codec-gateway serve` in a process of its own, on ports that it chose itself."""

import json
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import httpx2
import openai
import pytest

from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.vocab import map_digest
from tests.e2e.forked import ForkedGateway, run_forked

SERVERS = Path(__file__).parent / "servers"
ENGINE = os.environ.get("ENGINE", "embedded")


class Log:
    """What a process writes to stderr, line by line as it comes: lines of the gateway's log, or a person's text.

    Whoever looks sees all that was written by then: the thread only keeps the pipe from being full.
    """

    def __init__(self, stderr: IO[Any]) -> None:
        self._pipe = os.dup(stderr.fileno())
        os.set_blocking(self._pipe, False)
        self._lines: list[str] = []
        self._rest = b""
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        ready = select.poll()
        ready.register(self._pipe, select.POLLIN)
        while not self._ended:
            ready.poll()
            with self._changed:
                self._take()
        os.close(self._pipe)

    def _take(self) -> None:
        """All that was written until now; to be called with the lock held."""
        while not self._ended:
            try:
                data = os.read(self._pipe, 65536)
            except BlockingIOError:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._ended = not data
            if self._ended and self._rest:
                lines.append(self._rest)
            self._lines += [line.decode() for line in lines]
        self._changed.notify_all()

    @property
    def lines(self) -> list[str]:
        with self._changed:
            self._take()
            return list(self._lines)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def events(self, words: str) -> list[dict[str, Any]]:
        """The log entries whose event holds `words`."""
        entries = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [entry for entry in entries if words in entry["event"]]

    def wait_for(self, words: str, *, count: int = 1, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for the `count`th entry whose event holds `words`."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self.events(words)) >= count, seconds)
            found = self.events(words)
        assert len(found) >= count, f"no {words!r} number {count} in the log:\n{self.text[-4000:]}"
        return found[count - 1]

    def wait_for_engines(self, names: set[str], *, seconds: float = 60.0) -> None:
        """Wait until each of these engines is ready, or down."""

        def left() -> set[str]:
            return names - {e["engine"] for words in ("engine ready", "engine down") for e in self.events(words)}

        with self._changed:
            self._changed.wait_for(lambda: self._ended or not left(), seconds)
        assert not left(), f"{left()} neither ready nor down:\n{self.text[-4000:]}"

    def close(self) -> None:
        self._reader.join(20)


_START_TIME: Final = 240.0
"""Seconds that a start may take, beside whatever else the machine does."""


class RunningGateway:
    """One `codec-gateway serve`, and what a client needs to reach it."""

    def __init__(self, process: ForkedGateway, log: Log) -> None:
        self.process = process
        self.log = log
        ready = log.wait_for("gateway ready", seconds=_START_TIME)
        self.url: str = ready["url"]
        self.admin: str = ready["admin"]
        state = ready.get("engine", "none")
        if state == "starting" or " of " in state:
            log.wait_for_engines(set(self.readiness()[1].get("engines", ("engine",))), seconds=_START_TIME)

    @contextmanager
    def client(self) -> Iterator[openai.OpenAI]:
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=240) as client:
            yield client

    def metric(self, name: str, **labels: str) -> float:
        """The value of one series of /metrics; `labels` need not be all of them."""
        page = httpx2.get(f"{self.admin}/metrics", verify=False).text
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        rows = [row.rpartition(" ") for row in page.splitlines() if row.startswith((f"{name}{{", f"{name} "))]
        return sum(float(value) for series, _, value in rows if all(label in series for label in wanted))

    def readiness(self) -> tuple[int, dict[str, Any]]:
        answer = httpx2.get(f"{self.admin}/healthz/ready", verify=False)
        return answer.status_code, answer.json()

    def engine_pid(self) -> int:
        """The process of the embedded engine that was started last."""
        return int(self.log.events("engine ready")[-1]["pid"])


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without what would be settings of the gateway."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")} | dict(more or {})


def ran(*words: str, folder: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command printed. Raises `subprocess.CalledProcessError` if it failed."""
    done = run_forked(words, folder or Path.cwd(), os.environ if env is None else env)
    done.check_returncode()
    return done.stdout


def keys(folder: Path, *arguments: str) -> str:
    """What `codec-gateway keys` prints about the keys of the gateway in this folder."""
    return ran("keys", *arguments, "--keys", str(folder / "keys.toml"), folder=folder)


def key_for(folder: Path, name: str, *arguments: str) -> str:
    """A new key of the gateway in this folder."""
    return keys(folder, "add", name, *arguments).strip()


@contextmanager
def launched(
    folder: Path, servers: Mapping[str, Any], *flags: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[ForkedGateway, Log]]:
    """`codec-gateway serve` over an mcpServers file, on free ports, as a process that has just begun."""
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    arguments = ["serve", "--config", str(config), "--port", "0", "--admin-port", "0", *flags]
    with ForkedGateway(arguments, folder, clean_environment(env)) as process:
        log = Log(process.stderr)
        try:
            yield process, log
        finally:
            process.kill()
            log.close()


@contextmanager
def running_gateway(
    folder: Path, servers: Mapping[str, Any], *flags: str, env: Mapping[str, str] | None = None
) -> Iterator[RunningGateway]:
    """The same, ready; ended with SIGTERM."""
    with launched(folder, servers, *flags, env=env) as (process, log):
        yield RunningGateway(process, log)
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def map_file(tmp_path_factory: pytest.TempPathFactory, model_map_bytes: bytes) -> Path:
    """The token map of the packaged model as a file."""
    path = tmp_path_factory.mktemp("map") / "map.json"
    path.write_bytes(model_map_bytes)
    return path


@pytest.fixture(scope="session")
def time_leaf(map_file: Path) -> dict[str, Any]:
    """`time_leaf` as a configuration names it: it ships ids of the model's map."""
    env = {"CODEC_MAP_PATH": str(map_file), "CODEC_MAP_HASH": map_digest(map_file.read_bytes())}
    return {"command": sys.executable, "args": ["-m", "time_leaf"], "env": env}


@pytest.fixture(scope="session")
def plain_time() -> dict[str, Any]:
    """`plain_time` as a configuration names it: it ships text."""
    return {"command": sys.executable, "args": ["-m", "plain_time"]}


@pytest.fixture(scope="session")
def tells_time(server: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The same without MCP's SDK, for tests that need any server."""
    return server("tells_time")


@pytest.fixture(scope="session")
def says() -> Callable[..., dict[str, Any]]:
    """Makes a server of one tool, `say`, that returns the given content blocks."""

    def make(*blocks: Mapping[str, Any]) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(SERVERS / "says.py"), json.dumps(blocks)]}

    return make


@pytest.fixture(scope="session")
def server() -> Callable[..., dict[str, Any]]:
    """Makes a server of one of the scripts under servers/."""

    def make(script: str, **env: str) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(SERVERS / f"{script}.py")], "env": env}

    return make


@pytest.fixture(scope="session")
def run_gateway() -> Callable[..., AbstractContextManager[RunningGateway]]:
    """Starts a gateway in a folder of the caller's, for fixtures that outlive a test."""
    return running_gateway


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[Callable[..., RunningGateway]]:
    """Starts gateways that end with the test."""
    with ExitStack() as stack:

        def start(servers: Mapping[str, Any], *flags: str, env: Mapping[str, str] | None = None) -> RunningGateway:
            return stack.enter_context(running_gateway(tmp_path, servers, *flags, env=env))

        yield start


@pytest.fixture
def launch(tmp_path: Path) -> Callable[..., AbstractContextManager[tuple[ForkedGateway, Log]]]:
    """Starts a gateway without waiting until it is ready."""
    return partial(launched, tmp_path)


@pytest.fixture(scope="session")
def trained_flags(request: pytest.FixtureRequest) -> list[str]:
    """The engine of the README: the embedded one with the packaged model, or what `ENGINE` names (`engines-check`)."""
    if ENGINE == "embedded":
        return ["--engine", "embedded"]
    url: str = request.getfixturevalue("vllm_url") if ENGINE == "vllm" else ENGINE
    return ["--engine", url, "--model", str(packaged_model())]


@pytest.fixture(scope="session")
def engine_flags(request: pytest.FixtureRequest, trained_flags: list[str]) -> list[str]:
    """The same with the model of one layer where the engine is embedded: its answers come at once, and are nonsense."""
    if ENGINE != "embedded":
        return trained_flags
    return ["--engine", "embedded", "--model", str(request.getfixturevalue("one_layer"))]


@pytest.fixture(scope="session")
def site(
    tmp_path_factory: pytest.TempPathFactory,
    engine_flags: list[str],
    time_leaf: dict[str, Any],
    plain_time: dict[str, Any],
) -> Iterator[RunningGateway]:
    """A gateway with an engine, a leaf tool and a plain one. Shared by the tests that only ask."""
    servers = {"time_leaf": time_leaf, "plain_time": plain_time}
    with running_gateway(tmp_path_factory.mktemp("site"), servers, *engine_flags) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def trained_site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, trained_flags: list[str]
) -> Iterator[RunningGateway]:
    """The one of the README, with the packaged model. With `ENGINE`, `site` itself."""
    if ENGINE != "embedded":
        yield request.getfixturevalue("site")
        return
    servers = {name: request.getfixturevalue(name) for name in ("time_leaf", "plain_time")}
    with running_gateway(tmp_path_factory.mktemp("trained_site"), servers, *trained_flags) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def chat(site: RunningGateway) -> Iterator[openai.OpenAI]:
    """OpenAI's own client of the shared gateway."""
    with site.client() as client:
        yield client


@pytest.fixture(scope="session")
def trained_chat(trained_site: RunningGateway) -> Iterator[openai.OpenAI]:
    """The same of the one with the packaged model."""
    with trained_site.client() as client:
        yield client
