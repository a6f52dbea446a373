"""Which adapter speaks to an engine: the one that its settings name, or that its own answers show.

Turns `EngineConfig` and an address into a client that has not asked anything of it yet, or into an error that says in
one sentence what is wrong and what to do. Every question is bounded, so that a server that hangs is reported as quickly
as one that is not there. Everything above asks an engine what it can do (`Capabilities`), never which kind it is.

"""

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Literal

from gateway.config import EngineConfig
from gateway.engine.interface import Timings
from gateway.engine.wire.connections import SWAPPED, Connections
from gateway.engine.wire.engine_answers import error_of_answer, table_of
from gateway.engine.wire.engine_client import EngineClient
from gateway.engine.wire.event_stream import StreamSilent
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.engine.wire.llama_cpp_json import is_router, routed_model
from gateway.engine.wire.vllm_client import Vllm
from gateway.errors import EngineRefused, EngineStarting, EngineUnavailable
from gateway.escape import mask_text
from gateway.http1.connection import Connection, LinkLost, NoAnswer

# What answers at an engine's URL if it is no engine: a sentence with the way out.
#
# Turns the answers to `/` and `/v1/models` into one sentence. Services are recognised by marks; nothing that one sends
# is quoted, since it may be a page of HTML, or made to deceive who reads it. Pure.

_START: Final = 4096
_PAGES: Final = (b"<!doctype", b"<html", b"<?xml", b"<head")
_NEEDS_KEY: Final = (401, 403)
_SETTING: Final = "engine.url (--engine)"
_NEEDED: Final = "the gateway needs llama.cpp's llama-server or vLLM, since only these take token ids"

Answer = tuple[int, bytes]
"""Status and body."""


def is_page(body: bytes) -> bool:
    """Whether a body is a page for a browser."""
    return body[:_START].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_PAGES)


def other_server(url: str, root: Answer, models: Answer) -> str:
    """What answers at `url`. `root`, `models`: its answers to `/` and `/v1/models`."""
    start = root[1][:_START].lower()
    if b"ollama is running" in start:
        return f"Ollama answers at {url!r}: {_NEEDED}; run llama-server with the model's GGUF file"
    if b"codec-gateway" in start:
        return f"a codec-gateway answers at {url!r}: set {_SETTING} to the engine behind it"
    if b"jupyter" in start:
        return f"a Jupyter server answers at {url!r}: correct the port of {_SETTING}"
    if models[0] in _NEEDS_KEY:
        return (
            f"the server at {url!r} answers {models[0]} to /v1/models: set engine.api_key to the key that it asks for, "
            f"or correct {_SETTING}"
        )
    if _first_model(models).get("owned_by") == "llama-swap":
        return (
            f"llama-swap answers at {url!r}: add the model to the address, as {url}{SWAPPED}MODEL; correct {_SETTING}"
        )
    if _is_sglang(models):
        return f"SGLang answers at {url!r}, which the gateway can't speak to: serve the model with llama-server or vLLM"
    if _lists_models(models):
        return (
            f"the server at {url!r} has OpenAI's API, but is neither llama.cpp (it has no /props) nor vLLM (it has no "
            f"/version): {_NEEDED}; correct {_SETTING}, or set the kind of server (engine.api)"
        )
    what = "a web application or a proxy" if is_page(root[1]) or is_page(models[1]) else "another service"
    return (
        f"{what} answers at {url!r}, which is neither llama.cpp (it has no /props) nor vLLM (it has no /version): "
        f"correct {_SETTING}"
    )


def json_of(body: bytes) -> Any:
    """The JSON value of a body; None if it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _lists_models(models: Answer) -> bool:
    match json_of(models[1]):
        case {"data": list()}:
            return True
        case _:
            return False


def _first_model(models: Answer) -> Mapping[str, Any]:
    """The first model of a list as OpenAI has it, with what the server adds; empty if there is none."""
    match json_of(models[1]) if models[0] == _OK else None:
        case {"data": [{**model}, *_]}:
            return model
        case _:
            return {}


def _is_sglang(models: Answer) -> bool:
    return _first_model(models).get("owned_by") == "sglang"


# The first questions to a server at a URL: does anything answer, is its model loaded, and which kind is it?

Api = Literal["llama_cpp", "vllm"]
Get = Callable[[str], Awaitable[tuple[int, bytes]]]

_NOT_THERE: Final = (404, 405)
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_BAD_GATEWAY: Final = (502, 504)
_LOADING: Final = 503
_PROPS: Final = ("default_generation_settings", "total_slots", "chat_template", "model_path", "build_info")
"""Keys of which llama.cpp's /props has some."""


async def reach(
    url: str, api_key: str | None, api: Api | Literal["auto"], seconds: float, served: str | None = None
) -> tuple[Api, str | None]:
    """Ask a server whether it is up, what it is unless `api` says so, and which model to name in every request to it.

    If anything else is wrong with its answers, the adapter finds out and says so. `seconds`: for all answers together.
    `served`: see `EngineConfig.served_model`.

    Raises:
        EngineStarting: it is loading its model.
        EngineUnavailable: it can't be reached, says that it can't serve, or it is not known which model is meant.
        EngineRefused: what answers is not an engine that we know.
    """
    shown = mask_text(url)
    async with _asked(url, api_key, seconds) as get:
        _check_health(shown, *await get("/health"))
        found = await _api_of(shown, get) if api == "auto" else api
        if found == "vllm":
            return found, served
        props = table_of(json_of((await get("/props"))[1]))
        if served is None and not is_router(props):
            return found, None
        return found, routed_model(shown, props, table_of(json_of((await get("/v1/models"))[1])), served)


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
    # Its list of models is vLLM's, but what it takes and sends is not.
    if not _is_sglang(models) and ("max_model_len" in _first_model(models) or _has_version(*await get("/version"))):
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


def _has_version(status: int, body: bytes) -> bool:
    match json_of(body) if status == _OK else None:
        case {"version": str()}:
            return True
        case _:
            return False


async def _anybody(connection: Connection, *, doubted: bool) -> None:
    """Admit any engine: it is only asked what it is, and ids use other connections."""
    del connection, doubted


@cache
def _process_key() -> bytes:
    """The key of salts for an engine without an API key, which gateways could share. A forked process has its own."""
    return secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where an engine listens."""

    url: str
    api_key: str | None
    ours: bool
    """Whether we started it ourselves: then it is a llama.cpp server."""


async def connected(
    settings: EngineConfig,
    address: EngineAddress,
    on_loss: Callable[[], None],
    on_end: Callable[[Timings], None],
    seconds: float = 8.0,
) -> EngineClient:
    """Make the client of an engine. `seconds`: how long a server at a URL may take for its first answers.

    Raises:
        EngineUnavailable: it can't be reached.
        EngineRefused: what answers is not an engine that we know.
    """
    found, served = "llama_cpp", None
    if not address.ours:
        seconds = min(seconds, settings.idle_timeout)
        found, served = await reach(address.url, address.api_key, settings.api, seconds, settings.served_model)
    make = partial(Vllm, at_once=settings.at_once) if found == "vllm" else LlamaCpp
    return make(
        address.url,
        api_key=address.api_key,
        idle_timeout=settings.idle_timeout,
        served=served,
        keep_reasoning=settings.reasoning == "keep",
        on_loss=on_loss,
        on_end=on_end,
    )


def salt_of(api_key: str | None, principal: str) -> str:
    """The salt of a principal: nobody can read the name in it, and nobody else can make it.

    Gateways with the same engine key make the same salt; without a key it is valid only in this process.
    """
    key = api_key.encode() if api_key else _process_key()
    return hmac.new(key, b"cache salt\0" + principal.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
