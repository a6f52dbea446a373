"""Which adapter speaks to an engine: the one that its settings name, or that its own answers show.

Turns `EngineConfig` and an address into a client that has not asked anything yet. Everything above asks an engine what
it can do (`Capabilities`), never which kind it is.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from gateway.config import EngineConfig
from gateway.engine.http.answers import MISREAD
from gateway.engine.http.client import EngineClient, transport_errors
from gateway.engine.http.connections import Connections
from gateway.engine.interface import Timings
from gateway.engine.llama_cpp.client import LlamaCpp
from gateway.engine.vllm.client import Vllm
from gateway.errors import EngineRefused
from gateway.http1.connection import Connection

Api = Literal["llama_cpp", "vllm"]

_NOT_THERE: Final = (404, 405)
_PROCESS_KEY: Final = secrets.token_bytes(32)
"""The key of salts for an engine without an API key, which gateways could share."""


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where an engine listens."""

    url: str
    api_key: str | None
    ours: bool
    """Whether we started it ourselves: then it is a llama.cpp server."""


async def connected(
    settings: EngineConfig, address: EngineAddress, on_loss: Callable[[], None], on_end: Callable[[Timings], None]
) -> EngineClient:
    """Make the client of an engine.

    Raises:
        EngineUnavailable: it can't be reached.
        EngineRefused: what answers is not an engine that we know.
    """
    api = "llama_cpp" if address.ours else settings.api
    found: Api = await api_of(address, settings.idle_timeout) if api == "auto" else api
    keep_reasoning = settings.reasoning == "keep"
    if found == "llama_cpp":
        return LlamaCpp(
            address.url,
            api_key=address.api_key,
            idle_timeout=settings.idle_timeout,
            keep_reasoning=keep_reasoning,
            on_loss=on_loss,
            on_end=on_end,
        )
    return Vllm(
        address.url,
        api_key=address.api_key,
        idle_timeout=settings.idle_timeout,
        at_once=settings.at_once,
        served=settings.served_model,
        keep_reasoning=keep_reasoning,
        on_loss=on_loss,
        on_end=on_end,
    )


async def api_of(address: EngineAddress, idle_timeout: float) -> Api:
    """Ask an engine what it is: llama.cpp has `/props`; vLLM can be recognised by `/v1/models`, or has `/version`.

    If anything else is wrong with its answers, the adapter finds out and says so. Raises like `connected`.
    """
    headers = {"authorization": f"Bearer {address.api_key}"} if address.api_key else {}
    connections = Connections(
        address.url, headers, idle_timeout=idle_timeout, admit=_anybody, on_loss=lambda: None, keep_streams=True
    )
    try:
        with transport_errors(address.url):
            if (await connections.ask("GET", "/props"))[0] not in _NOT_THERE:
                return "llama_cpp"
            shown = _is_vllm(*await connections.ask("GET", "/v1/models"))
            if shown or (await connections.ask("GET", "/version"))[0] not in _NOT_THERE:
                return "vllm"
    finally:
        connections.close()
    raise EngineRefused(
        f"the server at {address.url!r} is neither llama.cpp (it has no /props) nor vLLM (its /v1/models does not look "
        "like vLLM's, and it has no /version): check the URL, or set the kind of server (engine.api)",
        502,
    )


def salt_of(api_key: str | None, principal: str) -> str:
    """The salt of a principal: nobody can read the name in it, and nobody else can make it.

    Gateways with the same engine key make the same salt; without a key it is valid only in this process.
    """
    key = api_key.encode() if api_key else _PROCESS_KEY
    return hmac.new(key, b"cache salt\0" + principal.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _is_vllm(status: int, body: bytes) -> bool:
    try:
        models: Any = json.loads(body) if status == 200 else {}
        return "max_model_len" in models["data"][0]
    except MISREAD:
        return False


async def _anybody(connection: Connection, *, doubted: bool) -> None:
    """Admit any engine: it is only asked what it is, and ids use other connections."""
    del connection, doubted
