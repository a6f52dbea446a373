"""What the endpoints need of the servers behind us, as one Protocol.

`gateway.proxy.Proxy` is the implementation; tests may have a smaller one. Nothing of HTTP or of lines stands here.
"""

from collections.abc import Callable, Collection, Coroutine
from typing import Any, Literal, Protocol

from gateway.protocol.annotations import Annotation
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.results import CallOutcome


class Change(Protocol):
    """A list of one server is another one now."""

    @property
    def kind(self) -> Literal["tools", "prompts", "resources"]:
        """Which list."""
        ...

    @property
    def server(self) -> str:
        """Whose."""
        ...

    @property
    def session(self) -> ClientSession | None:
        """Set where only this client's view of it changed."""
        ...


class Servers(Protocol):
    """Many MCP servers as one."""

    async def handle(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The raw result of a client's request but `tools/call`, in the caller's era. Raises RpcError."""
        ...

    def call_tool(self, params: dict[str, Any], caller: Caller) -> Coroutine[Any, Any, CallOutcome]:
        """The outcome of `tools/call`. Raises UnknownTool and RpcError."""
        ...

    async def tell(self, method: str, params: dict[str, Any], session: ClientSession) -> None:
        """A client's notification that servers should hear."""
        ...

    def capabilities(self, principal: Principal, *, modern: bool) -> dict[str, Any]:
        """What is truly forwarded, as `ServerCapabilities`."""
        ...

    def instructions(self, principal: Principal) -> str | None:
        """What a model should know of the servers."""
        ...

    @property
    def waits_for_clients(self) -> bool:
        """Whether a call waits for its client, who has to answer what the server asked."""
        ...

    async def ready(self) -> None:
        """Wait, not for ever, until every server that starts at once is up or has failed once."""
        ...

    def adopt(self, session: ClientSession) -> None:
        """This is the only client there will be: what it can be asked for is announced to the servers. Called before
        they start."""
        ...

    def session_ended(self, session: ClientSession) -> None:
        """Free what was opened for it."""
        ...

    def on_change(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call `callback` with each `Change`; the returned function ends that."""
        ...

    async def watch(
        self, uris: Collection[str], principal: Principal, updated: Callable[[str], None]
    ) -> Callable[[], None]:
        """Call `updated` with each of these resources that changed; the returned function ends that."""
        ...

    def annotations(self, name: str, principal: Principal) -> tuple[Annotation, ...]:
        """The arguments of a tool, by its public name, that headers repeat."""
        ...

    def server_of(self, tool: str) -> str | None:
        """The server that owns a tool, by the tool's public name; None: nobody is known to."""
        ...
