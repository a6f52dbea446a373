"""Generates, with our own engine, for servers whose client can't be asked to, if the operator allows it.

The `Sampler` is injected from above, since this package must not know the engine. `SamplingCaller` is a caller whose
sampling requests go to the sampler, while all other questions go to the caller itself. `Allowance` counts what a server
may still spend.
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
    """Generates with the engine."""

    async def sample(self, params: Mapping[str, Any], most: int, payer: Principal) -> tuple[dict[str, Any], int]:
        """Return the CreateMessageResult for `params`, and how many tokens it cost.

        Args:
            most: how many tokens to generate at most.
            payer: the principal to charge; the engine's queue and cache are divided among principals.

        Raises:
            RpcError: it can't be generated.
        """
        ...


class Allowance:
    """The engine tokens that one server may spend."""

    def __init__(self, server: str, tokens: int, rule: ShareRule, sampler: Sampler | None) -> None:
        """`tokens`: for the lifetime of this configuration. `rule`: how many of them one principal may cause."""
        self._sampler = sampler
        self._server = server
        self._tokens = tokens
        what = f"sampling tokens of server {server!r}"
        self._shares = rule.shares("sampling_tokens", tokens, what, f"upstreams.{server}.sampling_tokens")

    @property
    def left(self) -> int:
        """Tokens that have not been spent."""
        return self._tokens - self._shares.taken

    @property
    def open(self) -> bool:
        """Whether the server may be told that it can ask."""
        return self._sampler is not None and self.left > 0

    def with_sampling(self, caller: Caller) -> Caller:
        """Return the caller, or, if it can't sample and the operator allows it, one whose sampling our engine does."""
        return caller if CAPABILITY in caller.capabilities or not self.open else SamplingCaller(caller, self)

    async def spend(self, params: Mapping[str, Any], payer: Principal) -> dict[str, Any]:
        """Generate at the server's expense, within the payer's share. The most it can cost is reserved beforehand.

        Raises:
            RpcError: no tokens are left, or it can't be generated.
        """
        if self._sampler is None or self.left <= 0:
            raise rpc_error(INTERNAL_ERROR, f"server {self._server!r} has no sampling tokens left (sampling_tokens)")
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
    """A caller that can be asked to sample, because our engine does it in its place."""

    __slots__ = ("_allowance",)

    def __init__(self, caller: Caller, allowance: Allowance) -> None:
        super().__init__(caller)
        self._allowance = allowance

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The caller's capabilities, and sampling."""
        return {**super().capabilities, CAPABILITY: {}}

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer sampling requests with the engine, and pass on all others."""
        if method == SAMPLING:
            return await self._allowance.spend(params, self.principal)
        return await super().asked(method, params)
