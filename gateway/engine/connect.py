"""Which adapter speaks to an engine: the one that its settings name, or that its own answers tell.

Turns `EngineConfig` and an address into a client that has asked nothing yet. Everything above it asks an engine what it
can do (`Capabilities`), never which one it is.
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
"""For salts where an engine asks for no key that gateways could have in common."""


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
    """Give the client of an engine.

    Raises:
        EngineUnavailable: it can't be reached.
        EngineRefused: what answers is no engine that we know.
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
    """Ask an engine what it is: llama.cpp has `/props`; vLLM shows itself in `/v1/models`, or has `/version`.

    Whatever is wrong with an answer, its adapter finds out and says so. Raises as `connected`.
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
        f"what answers at {address.url!r} is neither a llama.cpp server (it has no /props) nor a vLLM server "
        "(/v1/models does not say so, and it has no /version): look at the URL, or name its kind (engine.api)",
        502,
    )


def salt_of(api_key: str | None, principal: str) -> str:
    """The salt of a principal: nobody reads the name in it, and nobody else can make it.

    Gateways with the same engine key make the same one; without a key it is of this process alone.
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
    """Whoever answers is asked what it is; ids go over other connections."""
    del connection, doubted
