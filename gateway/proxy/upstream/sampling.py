"""Generations for servers that ask for one where the client offers none: by our own engine, if the operator lets it.

A `Sampler` is given from above (the engine is no business of this package); `SamplingCaller` is a caller whose sampling
requests go to it, and `Allowance` counts what a server may still spend. Every other question goes to the caller itself.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from gateway.protocol.messages import INTERNAL_ERROR
from gateway.proxy.caller import Caller, ForwardingCaller, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.session import rpc_error

SAMPLING: Final = "sampling/createMessage"
CAPABILITY: Final = "sampling"


class Sampler(Protocol):
    """Something that generates."""

    async def sample(self, params: Mapping[str, Any], most: int, payer: Principal) -> tuple[dict[str, Any], int]:
        """The CreateMessageResult of `params`, and how many tokens it cost.

        Args:
            most: tokens to generate at most.
            payer: on whose behalf; the engine's queue and cache are shared out by principals.

        Raises:
            RpcError: it can't be generated.
        """
        ...


class Allowance:
    """What one server may spend of the engine."""

    def __init__(self, server: str, tokens: int, rule: ShareRule, sampler: Sampler | None) -> None:
        """`tokens`: in the whole life of this configuration; `rule`: how many of them one principal may cause."""
        self._sampler = sampler
        self._server = server
        self._tokens = tokens
        what = f"tokens of server {server!r} to sample with"
        self._shares = rule.shares("sampling_tokens", tokens, what, f"upstreams.{server}.sampling_tokens")

    @property
    def left(self) -> int:
        """Tokens that nobody has spent."""
        return self._tokens - self._shares.taken

    @property
    def open(self) -> bool:
        """Whether the server may be told that it can ask."""
        return self._sampler is not None and self.left > 0

    def help(self, caller: Caller) -> Caller:
        """The caller, with our engine to sample in its stead where it can't and the operator lets it."""
        return caller if CAPABILITY in caller.capabilities or not self.open else SamplingCaller(caller, self)

    async def spend(self, params: Mapping[str, Any], payer: Principal) -> dict[str, Any]:
        """Generate at the expense of the server, and of its caller's share. What runs is paid for before it runs.

        Raises:
            RpcError: nothing is left, or it can't be generated.
        """
        if self._sampler is None or self.left <= 0:
            raise rpc_error(
                INTERNAL_ERROR, f"server {self._server!r} has no tokens left to sample with (sampling_tokens)"
            )
        asked: object = params.get("maxTokens")
        left = self._shares.left(payer)
        most = min(asked, left) if isinstance(asked, int) and asked > 0 else left
        if (over := self._shares.take(payer, max(1, most))) is not None:
            raise rpc_error(INTERNAL_ERROR, over.message)
        spent = most
        try:
            result, spent = await self._sampler.sample(params, most, payer)
        finally:
            self._shares.give_back(payer, most - spent)
        return result


class SamplingCaller(ForwardingCaller):
    """A caller that can be asked to sample, because our engine does it in its stead."""

    __slots__ = ("_allowance",)

    def __init__(self, caller: Caller, allowance: Allowance) -> None:
        super().__init__(caller)
        self._allowance = allowance

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The caller's, and sampling."""
        return {**super().capabilities, CAPABILITY: {}}

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Sampling is done here; the rest is passed on."""
        if method == SAMPLING:
            return await self._allowance.spend(params, self.principal)
        return await super().asked(method, params)
