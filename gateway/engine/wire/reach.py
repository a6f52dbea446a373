"""The first questions to a server at a URL: does anything answer, is its model loaded, and which kind of server is it?

Turns an address into the kind of engine that answers there, or into an error that says in one sentence what is wrong
and what to do. Every question is bounded, so that a server that hangs is reported as quickly as one that is not there.
Nothing that another service sends is quoted (`other_server.py`).
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal

from gateway.config.masking import mask_text
from gateway.engine.wire.http.answers import error_of_answer
from gateway.engine.wire.http.connections import Connections
from gateway.engine.wire.http.event_stream import StreamSilent
from gateway.engine.wire.other_server import is_page, json_of, other_server
from gateway.errors import EngineRefused, EngineStarting, EngineUnavailable
from gateway.http1.connection import Connection
from gateway.http1.faults import LinkLost, NoAnswer

Api = Literal["llama_cpp", "vllm"]
Get = Callable[[str], Awaitable[tuple[int, bytes]]]

_NOT_THERE: Final = (404, 405)
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_BAD_GATEWAY: Final = (502, 504)
_LOADING: Final = 503
_PROPS: Final = ("default_generation_settings", "total_slots", "chat_template", "model_path", "build_info")
"""Keys of which llama.cpp's /props has some."""
_SETTING: Final = "engine.url (--engine)"


async def reach(url: str, api_key: str | None, api: Api | Literal["auto"], seconds: float) -> Api:
    """Ask a server whether it is up, and what it is unless `api` says so.

    If anything else is wrong with its answers, the adapter finds out and says so. `seconds`: for all answers together.

    Raises:
        EngineStarting: it is loading its model.
        EngineUnavailable: it can't be reached, or says that it can't serve.
        EngineRefused: what answers is not an engine that we know.
    """
    async with _asked(url, api_key, seconds) as get:
        _check_health(mask_text(url), *await get("/health"))
        return await _api_of(mask_text(url), get) if api == "auto" else api


def _check_health(shown: str, status: int, body: bytes) -> None:
    """A server that has no /health passes, since routers may not have it."""
    if status in _BAD_GATEWAY or (status == _LOADING and is_page(body)):
        raise EngineUnavailable(
            f"a proxy answers {status} at {shown!r}: start the engine behind it, or correct {_SETTING}"
        )
    if status == _LOADING:
        if isinstance(error_of_answer(status, body), EngineStarting):
            raise EngineStarting(f"the engine at {shown!r} is loading its model")
        raise EngineUnavailable(f"the engine at {shown!r} says that it can't serve (503 to /health): see its log")


async def _api_of(shown: str, get: Get) -> Api:
    """llama.cpp has `/props`; vLLM can be recognised by `/v1/models`, or has `/version`."""
    if _is_llama_cpp(*await get("/props")):
        return "llama_cpp"
    models = await get("/v1/models")
    if _is_vllm(*models) or _has_version(*await get("/version")):
        return "vllm"
    raise EngineRefused(other_server(shown, await get("/"), models), 502)


@asynccontextmanager
async def _asked(url: str, api_key: str | None, seconds: float) -> AsyncGenerator[Get]:
    """Requests to a server of which nothing is known. Whatever goes wrong is reported as `EngineUnavailable`."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    connections = Connections(
        url, headers, idle_timeout=seconds, admit=_anybody, on_loss=lambda: None, keep_streams=True
    )
    shown, is_connected = mask_text(url), False
    try:
        async with asyncio.timeout(seconds):
            async with connections.fresh():
                is_connected = True
            yield lambda path: connections.ask("GET", path)
    except (TimeoutError, StreamSilent) as error:
        raise EngineUnavailable(_silent(shown, seconds, is_connected=is_connected)) from error
    except LinkLost as error:
        raise EngineUnavailable(_unreached(shown, error, is_connected=is_connected)) from error
    except NoAnswer as error:
        raise EngineUnavailable(
            f"what listens at {shown!r} does not speak HTTP ({error}): correct the port of {_SETTING}, or write "
            f"{_other_scheme(url)} there"
        ) from error
    finally:
        connections.close()


def _silent(shown: str, seconds: float, *, is_connected: bool) -> str:
    if is_connected:
        return (
            f"the server at {shown!r} accepts connections, but did not answer within {seconds:g} s: it hangs, is too "
            f"busy, or speaks another protocol; look at its log, or correct {_SETTING}"
        )
    return (
        f"there was no connection to {shown!r} within {seconds:g} s: its host is down or unreachable, or behind a "
        f"firewall; check it, or correct {_SETTING}"
    )


def _unreached(shown: str, error: LinkLost, *, is_connected: bool) -> str:
    match error.__cause__:
        case ConnectionRefusedError():
            return f"nothing listens at {shown!r}: start the llama.cpp or vLLM server there, or correct {_SETTING}"
        case socket.gaierror():
            return f"the host of {shown!r} can't be found: check its spelling in {_SETTING}, and this machine's DNS"
        case ssl.SSLError() as fault:
            reason = (fault.reason or "handshake failed").replace("_", " ").lower()
            return (
                f"TLS with {shown!r} failed ({reason}): write http:// in {_SETTING} if the server speaks plain HTTP, "
                "or let this machine trust its certificate (SSL_CERT_FILE)"
            )
        case _:
            pass
    if is_connected:
        return (
            f"the server at {shown!r} closed the connection without an answer: it is not an HTTP server, or wants "
            f"{_other_scheme(shown)}; correct {_SETTING}"
        )
    return f"{shown!r} can't be reached ({error}): check {_SETTING} and the network"


def _other_scheme(url: str) -> str:
    return "http://" if url.startswith("https:") else "https://"


def _is_llama_cpp(status: int, body: bytes) -> bool:
    if status in _NOT_THERE or status in _REDIRECTS:
        return False
    if status != _OK:
        return not is_page(body)
    props = json_of(body)
    return isinstance(props, dict) and any(key in props for key in _PROPS)


def _is_vllm(status: int, body: bytes) -> bool:
    match json_of(body) if status == _OK else None:
        case {"data": [{"max_model_len": _}, *_]}:
            return True
        case _:
            return False


def _has_version(status: int, body: bytes) -> bool:
    match json_of(body) if status == _OK else None:
        case {"version": str()}:
            return True
        case _:
            return False


async def _anybody(connection: Connection, *, doubted: bool) -> None:
    """Admit any engine: it is only asked what it is, and ids use other connections."""
    del connection, doubted
