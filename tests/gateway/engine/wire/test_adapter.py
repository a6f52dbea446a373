"""Which adapter speaks to an engine: told by the engine's own answers, or by the settings."""

import re
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn import Config, Server

from gateway.config import EngineConfig
from gateway.engine.wire.adapter import EngineAddress, connected, other_server, salt_of
from gateway.engine.wire.engine_client import EngineClient
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.engine.wire.vllm_client import Vllm
from gateway.errors import EngineRefused, EngineUnavailable

pytestmark = pytest.mark.anyio

VLLM_MODELS = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8}]}
SGLANG_MODELS = {"data": [{"id": "m", "owned_by": "sglang", "root": "m", "max_model_len": 8}]}
"""As SGLang lists them: with the key by which vLLM is recognised."""
OTHER_MODELS = {"data": [{"id": "m", "owned_by": "somebody"}]}


@asynccontextmanager
async def served(**answers: object) -> AsyncGenerator[str]:
    """A server with these paths (their slashes written as `__`), and none besides."""
    routes = [
        Route(f"/{name.replace('__', '/')}", lambda request, said=said: JSONResponse(said))
        if not isinstance(said, int)
        else Route(f"/{name.replace('__', '/')}", lambda request, status=said: Response(status_code=status))
        for name, said in answers.items()
    ]
    server = Server(Config(Starlette(routes=routes), log_level="error", lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.should_exit = True


async def client(url: str, **settings: object) -> EngineClient:
    config = EngineConfig(kind="url", url=url, **settings)  # type: ignore[arg-type]
    found = await connected(config, EngineAddress(url, None, ours=False), lambda: None, lambda timings: None)
    await found.aclose()
    return found


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({"props": {"total_slots": 1}, "v1__models": OTHER_MODELS}, LlamaCpp),
        # What is wrong with it its adapter says: a wrong key, a model that is still loading.
        ({"props": 401}, LlamaCpp),
        ({"props": 503}, LlamaCpp),
        ({"v1__models": VLLM_MODELS, "version": {"version": "0.32.0"}}, Vllm),
        # A router passes the models on, and has no version.
        ({"v1__models": VLLM_MODELS}, Vllm),
        ({"v1__models": 401, "version": {"version": "0.32.0"}}, Vllm),
    ],
    ids=["llama.cpp", "wrong key", "loading", "vLLM", "router", "vLLM that wants a key"],
)
async def test_engine_is_told_by_its_answers(answers: dict[str, object], kind: type[EngineClient]) -> None:
    async with served(**answers) as url:
        assert type(await client(url)) is kind


async def test_server_that_is_neither_is_refused_with_what_it_lacks() -> None:
    async with served(v1__models=OTHER_MODELS) as url:
        with pytest.raises(EngineRefused, match=r"neither llama\.cpp .* nor vLLM .*engine\.api"):
            await client(url)


async def test_sglang_is_not_taken_for_vllm_whose_list_of_models_it_has() -> None:
    async with served(v1__models=SGLANG_MODELS, version={"version": "0.5.23"}) as url:
        with pytest.raises(EngineRefused, match=r"SGLang answers at .* serve the model with llama-server or vLLM"):
            await client(url)


async def test_setting_decides_whatever_the_server_answers() -> None:
    async with served(health={}) as url:
        assert type(await client(url, api="vllm")) is Vllm
        assert type(await client(url, api="llama_cpp")) is LlamaCpp


async def test_engine_of_our_own_is_not_asked() -> None:
    address = EngineAddress("http://127.0.0.1:9", None, ours=True)
    found = await connected(EngineConfig(kind="embedded"), address, lambda: None, lambda timings: None)

    assert type(found) is LlamaCpp


async def test_engine_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:9"):
        await client("http://127.0.0.1:9")


LISTED = (200, b'{"data": []}')
PAGE = (200, b"\xef\xbb\xbf <!DOCTYPE html>")


@pytest.mark.parametrize(
    ("root", "models", "words"),
    [
        ((200, b"Ollama is running"), LISTED, "Ollama answers at 'http://a': .*llama-server"),
        ((200, b"<html>Codec-Gateway"), LISTED, "a codec-gateway answers at 'http://a': set"),
        ((200, b"<title>Jupyter"), LISTED, "a Jupyter server answers at 'http://a': correct the port"),
        ((404, b""), (401, b""), "answers 401 to /v1/models: set engine.api_key"),
        ((404, b""), (403, b"{"), "answers 403 to /v1/models: set engine.api_key"),
        ((404, b""), LISTED, "has OpenAI's API, but is neither"),
        (PAGE, (404, b""), "a web application or a proxy answers at 'http://a'"),
        ((404, b""), PAGE, "a web application or a proxy answers at 'http://a'"),
        ((200, b"hello <html>"), (200, b'{"data": 7}'), "another service answers at 'http://a'"),
        ((404, b""), (200, b"[" * 100_000), "another service answers at 'http://a'"),
    ],
)
def test_other_server_is_named_with_what_to_do(root: tuple[int, bytes], models: tuple[int, bytes], words: str) -> None:
    assert re.match(f".*{words}", other_server("http://a", root, models))


def test_salt_names_nobody() -> None:
    assert salt_of("key", "ada") == salt_of("key", "ada")
    assert salt_of("key", "ada") != salt_of("other", "ada")
    assert salt_of(None, "ada") != salt_of("key", "ada")
    assert "ada" not in salt_of("key", "ada")
