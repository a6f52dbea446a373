"""Which adapter speaks to an engine: told by the engine's own answers, or by the settings."""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn import Config, Server

from gateway.config import EngineConfig
from gateway.engine.wire.adapter import EngineAddress, connected, other_server, reach, salt_of
from gateway.engine.wire.engine_client import EngineClient
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.engine.wire.vllm_client import Vllm
from gateway.errors import EngineRefused, EngineStarting, EngineUnavailable
from tests.cases import each_of
from tests.gateway.engine.engines import listening

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


async def test_llama_swap_is_told_apart_from_the_models_behind_it() -> None:
    models = {"data": [{"id": "m", "owned_by": "llama-swap"}]}
    async with served(v1__models=models) as url:
        with pytest.raises(EngineRefused, match=rf"llama-swap answers at .*, as {url}/upstream/MODEL"):
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


@each_of(
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


def http(status: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def saying(answer: bytes | None) -> AsyncGenerator[str]:
    """A server that answers everything alike; None: nothing at all."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            while await stream.receive():
                if answer is None:
                    continue
                await stream.send(answer)
                if not answer.startswith(b"HTTP"):
                    return

    async with listening(serve) as url:
        yield url


async def reached(url: str, api_key: str | None = None, seconds: float = 20.0) -> str:
    return (await reach(url, api_key, "llama_cpp", seconds))[0]


@each_of(
    ("answer", "kind", "words"),
    [
        (http("502 Bad"), EngineUnavailable, "a proxy answers 502 at '{}': start the engine behind it"),
        (http("504 Late"), EngineUnavailable, "a proxy answers 504 at '{}'"),
        (http("503 Busy", b" <!doctype html>"), EngineUnavailable, "a proxy answers 503 at '{}'"),
        (http("503 Busy", b'{"error": {"message": "Loading model"}}'), EngineStarting, "at '{}' is loading its model"),
        (http("503 Busy", b"{}"), EngineUnavailable, "at '{}' says that it can't serve .503 to /health.: see its log"),
        (b"", EngineUnavailable, "the server at '{}' closed the connection without an answer: .* or wants https://;"),
        (b"220 mail.example SMTP\r\n", EngineUnavailable, "at '{}' does not speak HTTP .*or write https:// there"),
        (None, EngineUnavailable, "at '{}' accepts connections, but did not answer within 1 s: it hangs"),
    ],
)
async def test_server_that_can_not_be_used_yet_is_named_with_what_to_do(
    answer: bytes | None, kind: type[Exception], words: str
) -> None:
    async with saying(answer) as url:
        with pytest.raises(EngineUnavailable, match=words.format(re.escape(url))) as raised:
            await reached(url, seconds=1.0 if answer is None else 20.0)
    assert type(raised.value) is kind


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "401 Unauthorized", "500 Broken", "503 Busy"])
async def test_health_of_a_server_may_be_anything_but_away(status: str) -> None:
    async with saying(http(status, b'{"error": {"message": "x"}}')) as url:
        if status.startswith("503"):
            with pytest.raises(EngineUnavailable):
                await reached(url)
        else:
            assert await reached(url) == "llama_cpp"


def tls_fault(reason: str | None) -> ssl.SSLError:
    fault = ssl.SSLError(1, "wrong")
    fault.reason = reason  # pyright: ignore[reportAttributeAccessIssue]
    return fault


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (ConnectionRefusedError(), "nothing listens at 'http://a': start the llama.cpp or vLLM server there"),
        (socket.gaierror(), "the host of 'http://a' can't be found: check its spelling in engine.url"),
        (tls_fault(None), r"TLS with 'http://a' failed \(handshake failed\): write http:// in engine.url"),
        (tls_fault("WRONG_VERSION_NUMBER"), r"TLS with 'http://a' failed \(wrong version number\)"),
        (OSError("no route"), r"'http://a' can't be reached \(no route\): check engine.url"),
        (OSError(), r"'http://a' can't be reached \(OSError\(\)\): check engine.url"),
        (TimeoutError(), "there was no connection to 'http://a' within 9 s: its host is down or unreachable"),
    ],
)
async def test_server_that_is_not_reached_is_told_with_the_cause(fault: Exception, words: str, monkeypatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", refuse)
    with pytest.raises(EngineUnavailable, match=words):
        await reached("http://a", seconds=9.0)


async def test_plain_server_that_is_asked_by_tls_is_told_apart() -> None:
    async with saying(http("200 OK")) as url:
        with pytest.raises(EngineUnavailable, match=r"TLS with 'https://.*' failed .*write http://"):
            await reached(url.replace("http:", "https:"))


@pytest.mark.parametrize("key", [None, "secret"])
async def test_server_is_asked_with_the_key_and_named_without_a_password(key: str | None) -> None:
    heard: list[bytes] = []

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            heard.append(await stream.receive())
            await stream.send(http("502 Bad"))

    async with listening(serve) as url:
        with pytest.raises(EngineUnavailable) as raised:
            await reached(url.replace("http://", "http://me:password@"), key)
    assert "password" not in raised.value.message
    assert (b"authorization: Bearer secret" in heard[0]) is (key is not None)


async def test_client_waits_for_its_first_answers_no_longer_than_silence_may_last() -> None:
    async with saying(None) as url:
        with pytest.raises(EngineUnavailable, match=r"did not answer within 1 s"):
            await client(url, idle_timeout=1.0)


@each_of(
    ("props", "kind"),
    [
        ({"model_path": "m"}, LlamaCpp),
        ({"build_info": "m"}, LlamaCpp),
        ({"other": 1}, None),
        ([], None),
        (404, None),
        (405, None),
        (301, None),
        (399, None),
        (400, LlamaCpp),
    ],
)
async def test_llama_cpp_is_known_by_the_keys_of_its_properties_or_its_own_error(props: object, kind: object) -> None:
    async with served(props=props) as url:
        if kind is None:
            with pytest.raises(EngineRefused, match="another service answers"):
                await client(url)
        else:
            assert type(await client(url)) is kind


@pytest.mark.parametrize(
    "answers",
    [
        {"version": {"version": 7}},
        {"version": 404},
        {"v1__models": {"data": []}, "version": []},
        {"v1__models": {"data": ["m"]}},
        {"v1__models": {"data": [{"id": "m"}]}},
    ],
)
async def test_vllm_is_known_by_its_version_or_the_length_that_it_lists(answers: dict[str, object]) -> None:
    async with served(**answers) as url:
        with pytest.raises(EngineRefused):
            await client(url)


def test_salt_of_a_name_that_can_not_be_written_is_one_too() -> None:
    assert len(salt_of("key", "\ud800")) == 64
