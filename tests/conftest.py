"""What every test stands on: asyncio as the event loop, nothing of the user's own environment, and the real engine."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gateway.engine.embedded import packaged_model
from leaf_sdk.fetch import map_bytes
from leaf_sdk.vocab import TokenMap, load_map

# How long an example takes, to try or to think up, says how busy the machine is, not whether the code is right.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")


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
def _cache_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled maps are kept; those of tests are not to lie among the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def model_map_bytes() -> bytes:
    """The token map of the packaged SmolLM2 model, built from its GGUF file."""
    return map_bytes(packaged_model())


@pytest.fixture(scope="session")
def model_map(model_map_bytes: bytes) -> TokenMap:
    return load_map(model_map_bytes)


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """A real llama.cpp server with the packaged model, shared by the tests that only ask it things."""
    place = {"model": str(packaged_model()), "host": "127.0.0.1", "port": 0}
    settings = {**place, "context": 4096, "slots": 2, "threads": 1}
    command = [sys.executable, "-m", "gateway.engine.embedded_server", json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        yield child.stdout.readline().decode().strip()
        child.kill()


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
