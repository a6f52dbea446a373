"""Who makes a request to the proxy, what may be sent to them while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, Protocol

from gateway.errors import rpc_error
from gateway.protocol.messages import METHOD_NOT_FOUND

# `serve` implements these for each kind of client; the agent and the proxy itself use `NOBODY`. The proxy knows nothing
# about a client beyond what is defined here.


@dataclass(frozen=True, slots=True)
class CallerToken:
    """An access token with which somebody came. It is exchanged for one of a server's, and never sent to a server."""

    rights: str
    """A digest of all that it says but its times and its number: the same for tokens that renew each other."""
    expires: float
    """Seconds since 1970 until which the gateway accepts it."""
    audience: tuple[str, str] = ("", "")
    """Its issuer, and the name of the gateway there: what both are in is a token for the gateway."""
    text: str = field(default="", repr=False)
    """Empty where no server needs it."""


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf a request is made, and what they may see."""

    name: str
    """Identifies them in the audit log and in limits: the key's name, the token's subject, or `anonymous`."""
    servers: frozenset[str] | None = None
    """Names of the servers they may use; None: all."""
    tools: tuple[str, ...] | None = None
    """Patterns (`fnmatch`, case-sensitive) of the public tool names they may use; None: all."""
    within: tuple[str, ...] | None = None
    """Patterns of which one must fit as well: those of the view through which they came; None: there is none."""
    view: str | None = None
    """The name of that view."""
    owner: str = field(default="", compare=False)
    """Whose sign-ins at servers they use: unlike `name`, never somebody else's later on. Empty: none of their own."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    """Headers of their request that servers may get (`client_headers`), by name in lower case."""
    token: CallerToken | None = field(default=None, compare=False)
    """The access token with which they came; None: another credential."""
    alone: bool = field(default=False, compare=False)
    """Whether they may use every bound in full, not only a share: nobody else can be told apart from them, or they are
    the operator."""

    @property
    def is_limited(self) -> bool:
        """Whether there may be a server or a tool that they may not use."""
        return not (self.servers is None and self.tools is None and self.within is None)

    def sees(self, server: str) -> bool:
        """Whether the server exists for them at all."""
        return self.servers is None or server in self.servers

    def may_call(self, server: str, tool: str) -> bool:
        """Whether they may list and call this tool, by its public name."""
        if self.servers is not None and server not in self.servers:
            return False
        if self.tools is None and self.within is None:
            return True
        patterns = [each for each in (self.tools, self.within) if each is not None]
        return all(any(fnmatchcase(tool, each) for each in some) for some in patterns)


ANYBODY: Final = Principal("anonymous", alone=True)


class Exchange(Protocol):
    """Receives what a server sends of its own accord: for the request that it belongs to, or for a whole session."""

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Take a notification; they come in order. Never blocks and never raises: a slow receiver loses some."""
        ...

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of the server (sampling, elicitation, roots) with its raw result. Raises `RpcError`: the
        client refuses, can't be asked, or is gone."""
        ...


class ClientSession(Exchange, Protocol):
    """A client of the handshake era, from `initialize` to the end of its session. Compared and hashed by identity."""

    @property
    def times_heard(self) -> int:
        """How many times it has sent something."""
        ...

    @property
    def idle_since(self) -> float | None:
        """The loop's time of the last message from it; None: it waits for an answer, or listens."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that it announced."""
        ...

    @property
    def log_level(self) -> str | None:
        """The level of its last `logging/setLevel`; None: it set none."""
        ...

    @property
    def principal(self) -> Principal:
        """On whose behalf it connected."""
        ...


class Caller(Exchange, Protocol):
    """One request of a client, while it runs."""

    @property
    def modern(self) -> bool:
        """Whether it speaks 2026-07-28: its results must have that revision's shape, and it can't be sent requests."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it can be asked, or (modern) told to supply."""
        ...

    @property
    def log_level(self) -> str | None:
        """The least severe log level that it wants; None: it wants no log messages."""
        ...

    @property
    def principal(self) -> Principal:
        """On whose behalf it is made."""
        ...

    @property
    def session(self) -> ClientSession | None:
        """Its session in the handshake era; None: it has none."""
        ...


class ForwardingCaller:
    """A caller that wraps another one and forwards to it everything that a subclass does not override."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def modern(self) -> bool:
        """See `Caller`."""
        return self._caller.modern

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """See `Caller`."""
        return self._caller.capabilities

    @property
    def log_level(self) -> str | None:
        """See `Caller`."""
        return self._caller.log_level

    @property
    def principal(self) -> Principal:
        """See `Caller`."""
        return self._caller.principal

    @property
    def session(self) -> ClientSession | None:
        """See `Caller`."""
        return self._caller.session

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Pass it on to the wrapped caller."""
        self._caller.notified(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Pass it on to the wrapped caller."""
        return await self._caller.asked(method, params)


class Nobody:
    """A caller that ignores notifications and can't be asked."""

    log_level: str | None = None
    session: ClientSession | None = None

    def __init__(
        self, *, modern: bool, principal: Principal = ANYBODY, capabilities: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """`capabilities`: announced although it has none, to see what a server offers to those that have them."""
        self.modern = modern
        self.principal = principal
        self.capabilities = capabilities

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Drop it."""

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Raise an RpcError: nobody can be asked."""
        raise rpc_error(METHOD_NOT_FOUND, f"there is no client that can answer {method!r}")


NOBODY: Final[Caller] = Nobody(modern=False)
"""Takes results in the shape of the handshake era: for the agent, and for whoever needs only the content."""
NOBODY_MODERN: Final[Caller] = Nobody(modern=True)
"""Takes results with everything that a modern server adds to them."""
