"""Which adapter speaks to an engine: the one that its settings name, or that its own answers show.

Turns `EngineConfig` and an address into a client that has not asked anything yet. Everything above asks an engine what
it can do (`Capabilities`), never which kind it is.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.config import EngineConfig
from gateway.engine.interface import Timings
from gateway.engine.wire.http.client import EngineClient
from gateway.engine.wire.llama_cpp.client import LlamaCpp
from gateway.engine.wire.reach import reach
from gateway.engine.wire.vllm.client import Vllm

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
    found = "llama_cpp"
    if not address.ours:
        seconds = min(seconds, settings.idle_timeout)
        found = await reach(address.url, address.api_key, settings.api, seconds)
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


def salt_of(api_key: str | None, principal: str) -> str:
    """The salt of a principal: nobody can read the name in it, and nobody else can make it.

    Gateways with the same engine key make the same salt; without a key it is valid only in this process.
    """
    key = api_key.encode() if api_key else _PROCESS_KEY
    return hmac.new(key, b"cache salt\0" + principal.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
