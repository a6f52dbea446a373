"""`codec-gateway engine`: the packaged llama.cpp server by itself, as a gateway in another container uses it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running engine that asks for a key, and its address."""
    command = [sys.executable, "-m", "gateway", "engine", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")}
    environment |= {"CODEC_ENGINE_KEY": "engine-key", "CODEC_GATEWAY_ENGINE__CONTEXT": "2048"}
    with subprocess.Popen(
        command,
        cwd=tmp_path_factory.mktemp("engine"),
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            ready = next(line for line in process.stderr if "engine ready" in line)
            yield process, json.loads(ready)["url"]
        finally:
            process.kill()


def test_gateway_generates_through_an_engine_elsewhere(
    engine: tuple[subprocess.Popen[str], str], start_gateway: Callable[..., Any]
) -> None:
    gateway = start_gateway({}, "--engine", engine[1], env={"CODEC_GATEWAY_ENGINE__API_KEY": "engine-key"})
    with gateway.client() as client:
        answer = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Say hello."}], max_tokens=4, temperature=0
        )

    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4


def test_its_health_needs_no_key_and_its_generations_do(engine: tuple[subprocess.Popen[str], str]) -> None:
    _, url = engine

    assert httpx2.get(f"{url}/health").status_code == 200
    assert httpx2.post(f"{url}/completion", json={"prompt": "a", "n_predict": 1}).status_code == 401


def test_term_ends_it_with_success(engine: tuple[subprocess.Popen[str], str]) -> None:
    process, url = engine

    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == 0
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/health")
