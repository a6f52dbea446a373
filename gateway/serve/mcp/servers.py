"""What the endpoints need of the servers behind the gateway, as one Protocol.

`gateway.proxy.proxy.Proxy` is the implementation; tests may have a smaller one. It knows neither HTTP nor lines.
"""

from collections.abc import Callable, Collection, Coroutine
from typing import Any, Literal, Protocol

from gateway.protocol.headers import Annotation
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.results import CallOutcome


class Change(Protocol):
    """A change of one of a server's lists."""

    @property
    def kind(self) -> Literal["tools", "prompts", "resources"]:
        """Which list changed."""
        ...

    @property
    def server(self) -> str:
        """The name of the server whose list changed."""
        ...

    @property
    def session(self) -> ClientSession | None:
        """The only client for which the list changed; None: it changed for all."""
        ...

    @property
    def owner(self) -> str | None:
        """The `owner` of the only principal for whom the list changed; None: it changed for all."""
        ...


class Servers(Protocol):
    """Many MCP servers as one."""

    async def handle(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The raw result of a client's request other than `tools/call`, in the caller's era. Raises RpcError."""
        ...

    def call_tool(self, params: dict[str, Any], caller: Caller) -> Coroutine[Any, Any, CallOutcome]:
        """The outcome of `tools/call`. Raises UnknownTool and RpcError."""
        ...

    async def tell(self, method: str, params: dict[str, Any], session: ClientSession) -> None:
        """Pass on a client's notification to the servers that should get it."""
        ...

    def capabilities(self, principal: Principal, *, modern: bool) -> dict[str, Any]:
        """The `ServerCapabilities` to announce: only what is really forwarded."""
        ...

    def instructions(self, principal: Principal) -> str | None:
        """What a model should know about the servers; None: nothing."""
        ...

    @property
    def waits_for_clients(self) -> bool:
        """Whether any call waits for its client to answer a question of the server's."""
        ...

    async def ready(self) -> None:
        """Wait, but not for ever, until every server that starts by itself is up or has failed once."""
        ...

    def adopt(self, session: ClientSession) -> None:
        """Announce to the servers what this client can be asked for: it is the only one there will be. To be called
        before they start."""
        ...

    def session_ended(self, session: ClientSession) -> None:
        """Release everything that was opened for this session."""
        ...

    def on_change(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call `callback` with each `Change`, until the returned function is called."""
        ...

    async def watch(
        self, uris: Collection[str], principal: Principal, updated: Callable[[str], None]
    ) -> Callable[[], None]:
        """Call `updated` with each of these resources when it changes, until the returned function is called."""
        ...

    def through_view(self, principal: Principal, name: str) -> Principal | None:
        """The principal as it sees the gateway at `/mcp/<name>`; None: there is no such view or server for it."""
        ...

    def annotations(self, name: str, principal: Principal) -> tuple[Annotation, ...]:
        """The arguments of a tool that HTTP headers repeat. `name`: the tool's public name."""
        ...

    def server_of(self, tool: str, view: str | None = None) -> str | None:
        """The server that owns a tool, by the tool's public name, or its name in a view; None: none is known to."""
        ...
