"""Who asks the proxy for something, and what may be said to them meanwhile.

Protocols only: `serve` implements them for each kind of client (a session of the handshake era over HTTP or standard
input, a single 2026 request), the agent and the proxy itself use `NOBODY`. The proxy never learns more of a client than
stands here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, Protocol

from gateway.errors import RpcError
from gateway.protocol.messages import METHOD_NOT_FOUND


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf a request comes, and what they may see."""

    name: str
    """For the audit log and for limits: the key's name, the token's subject, or `anonymous`."""
    servers: frozenset[str] | None = None
    """Names of the servers they may use; None: all."""
    tools: tuple[str, ...] | None = None
    """Patterns (`fnmatch`, case-sensitive) of the public tool names they may use; None: all."""
    alone: bool = field(default=False, compare=False)
    """Whether all bounds are whole theirs, and not a share of them: no other can be told from them, or it is the
    operator."""

    def sees(self, server: str) -> bool:
        """Whether the server exists for them at all."""
        return self.servers is None or server in self.servers

    def may_call(self, server: str, tool: str) -> bool:
        """Whether they may list and call this tool, by its public name."""
        if self.servers is None and self.tools is None:
            return True
        return self.sees(server) and (self.tools is None or any(fnmatchcase(tool, each) for each in self.tools))


ANYBODY: Final = Principal("anonymous", alone=True)


class Exchange(Protocol):
    """Where what a server says of its own accord goes: to the request that it belongs to, or to a whole session."""

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """A notification, in the order it came. Never blocks and never raises: who can't keep up loses some."""
        ...

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A request of the server's (sampling, elicitation, roots): its raw result.

        Raises:
            RpcError: the client refuses, can't be asked, or is gone.
        """
        ...


class ClientSession(Exchange, Protocol):
    """A client of the handshake era, from its `initialize` to its end. Compared and hashed by identity."""

    @property
    def times_heard(self) -> int:
        """How often it has sent something."""
        ...

    @property
    def idle_since(self) -> float | None:
        """The loop's time since when it was not heard; None: it waits for an answer, or listens."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it announced."""
        ...

    @property
    def log_level(self) -> str | None:
        """What it last asked for by `logging/setLevel`."""
        ...

    @property
    def principal(self) -> Principal:
        """On whose behalf it came."""
        ...


class Caller(Exchange, Protocol):
    """One request of a client, while it runs."""

    @property
    def modern(self) -> bool:
        """Whether it speaks 2026-07-28: its results need that shape, and it can't be asked, only answered."""
        ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it can be asked for, or (modern) can be told to supply."""
        ...

    @property
    def log_level(self) -> str | None:
        """The least severe log message that it wants; None: none."""
        ...

    @property
    def principal(self) -> Principal:
        """On whose behalf it comes."""
        ...

    @property
    def session(self) -> ClientSession | None:
        """Its session, in the handshake era."""
        ...


class ForwardingCaller:
    """A caller that stands before another one, and is as that one is where a subclass does not say otherwise."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def modern(self) -> bool:
        """As the caller's."""
        return self._caller.modern

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """As the caller's."""
        return self._caller.capabilities

    @property
    def log_level(self) -> str | None:
        """As the caller's."""
        return self._caller.log_level

    @property
    def principal(self) -> Principal:
        """As the caller's."""
        return self._caller.principal

    @property
    def session(self) -> ClientSession | None:
        """As the caller's."""
        return self._caller.session

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Passed on."""
        self._caller.notified(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Passed on."""
        return await self._caller.asked(method, params)


class Nobody:
    """A caller that listens to nothing and can't be asked."""

    log_level: str | None = None
    session: ClientSession | None = None

    def __init__(
        self, *, modern: bool, principal: Principal = ANYBODY, capabilities: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """`capabilities`: announced all the same, to learn what is there for those who have them."""
        self.modern = modern
        self.principal = principal
        self.capabilities = capabilities

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Nobody hears it."""

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Nobody can be asked."""
        raise RpcError({"code": METHOD_NOT_FOUND, "message": f"nobody here can be asked {method!r}"})


NOBODY: Final[Caller] = Nobody(modern=False)
"""Takes results in the handshake era's shape: the agent, and whoever only wants the content."""
NOBODY_MODERN: Final[Caller] = Nobody(modern=True)
"""Takes results with all that a modern server says of them."""
