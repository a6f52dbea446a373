"""Every error that the gateway raises on purpose, as one tree.

Callers catch the branch that they can handle; `message` is written for the person who reads it: it names the thing,
says what was expected and what to do next.

GatewayError
├── ConfigError                 a setting is wrong; nothing was started            exit code 3
│   └── UnknownFormat           no tool-call format of that name (gateway.toolcalls)
├── EngineError                 the engine did not do what was asked
│   ├── EngineUnavailable       it can't be reached, or broke off an answer        exit code 4
│   │   ├── EngineBusy          it has all the work it can take, and the queue is full
│   │   ├── EngineLost          it broke off where no other engine can continue
│   │   ├── EngineStarting      it is not ready yet, and nothing is known to be wrong
│   │   └── ModelUnusable       its model's file can't be loaded, however often it is tried
│   ├── EngineRefused           it answered with an error of its own
│   │   └── GrammarRefused      it does not accept a request's grammar
│   ├── TemplateRefused         its chat template can't express the conversation
│   └── MapDiffers              its tokenizer differs from that of the map         exit code 4
├── UpstreamError               an MCP server behind us failed
│   ├── UpstreamUnavailable     it is not running, or its connection broke
│   │   ├── SignInNeeded        the caller has to sign in to it first, as themselves
│   │   ├── SessionGone         its session is gone: the request can be sent again (gateway.proxy.upstream)
│   │   └── NoCommonEra         it speaks no revision of MCP that we speak (gateway.proxy.upstream)
│   └── UpstreamTimeout         it did not answer in time
├── RpcError                    a JSON-RPC error to be sent to a client or a server
├── UnknownTool                 no upstream offers a tool of that name
├── NotApproved                 a call needs an approval, and has none
├── RequestInvalid              a client asked for something we can't do
│   ├── NotStored               no response with this id is kept for the client (gateway.serve.responses)
│   ├── ModelUnknown            it names a model that no engine serves
│   ├── ContextExceeded         its conversation does not fit into the engine's context
│   ├── BodyOverLimit           its body is too large (gateway.serve.http)
│   └── BodyUnread              its body is in a form that is not accepted (gateway.serve.http)
├── NotAnswered                 another replica did not answer a request
│   ├── OwnerGone               the replica that has what the request names is gone
│   └── ReplicaBusy             that replica can't be asked just now
└── MapUnknown                  a client named a map that is not on the allow-list

Some exceptions stand outside the tree, because none of them leaves its package: they are raised and caught by
neighbouring modules, and callers further up get an error of the tree, or an answer in the protocol at hand.

http1                   NoAnswer, LinkLost
proxy.transport         PeerError, Unfit, SessionForgotten, SignInReplaced, MaybeForgotten, NotOurs, NotIssued, Refused
proxy.upstream          Full
protocol                Unwritable
engine                  FileUnfit, _FileFault
engine.wire             StreamSilent, LineOverLimit
replicas                RecordFault, NoRoom
shared                  Unreadable
serve.auth              CredentialRefused, ScopeMissing, CannotTell, MustWait, FetchFailed
serve.mcp               Rejected, ClientGone
serve.http              _HeadRefused
toolcalls               NotSimple, NotHeld, RegionTooLong, TooMany, _TooMuch
"""

from typing import Any


class GatewayError(Exception):
    """The root of the tree."""

    @property
    def message(self) -> str:
        """The sentence for the person who reads the error."""
        return str(self.args[0]) if self.args else type(self).__name__


class ConfigError(GatewayError):
    """A setting is wrong. Raised before anything is started."""


class EngineError(GatewayError):
    """The engine did not do what was asked."""


class EngineUnavailable(EngineError):
    """The engine can't be reached, or its answer broke off in the middle."""


class EngineBusy(EngineUnavailable):
    """The engine is there, but it has all the work it can take and the queue is full."""


class EngineLost(EngineUnavailable):
    """The engine was lost in the middle of an answer that a grammar constrains, so no other can continue it.

    What was generated until then stands.
    """


class EngineStarting(EngineUnavailable):
    """The engine is not ready yet, and nothing is known to be wrong with it."""


class ModelUnusable(EngineUnavailable):
    """The model's file can't be loaded. It is not tried again until the file changes."""


class EngineRefused(EngineError):
    """The engine answered with an error: `status` is its HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class GrammarRefused(EngineRefused):
    """The engine does not accept the grammar of a request. Nothing was generated."""


class TemplateRefused(EngineError):
    """The engine's chat template can't express the conversation."""


class MapDiffers(EngineError):
    """The engine's tokenizer gives different ids than the map: the route to the engine stays closed."""

    def __init__(self, message: str, *, sample: str, map_ids: list[int], engine_ids: list[int]) -> None:
        super().__init__(message)
        self.sample = sample
        self.map_ids = map_ids
        self.engine_ids = engine_ids


class UpstreamError(GatewayError):
    """An MCP server behind us failed; `server` is its name in the configuration."""

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server = server


class UpstreamUnavailable(UpstreamError):
    """The upstream is not running, or its connection broke in the middle of the call.

    `begun`: whether the server may have begun to act on the request.
    """

    def __init__(self, message: str, *, server: str, begun: bool = False) -> None:
        super().__init__(message, server=server)
        self.begun = begun


class SignInNeeded(UpstreamUnavailable):
    """The caller has a sign-in of its own at the upstream, or should have: a person has to open `page` first."""

    def __init__(self, server: str, page: str) -> None:
        super().__init__(
            f"server {server!r} needs you to sign in to it: open {page} in a browser, sign in, and call again",
            server=server,
        )
        self.page = page


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer within the time limit of the call."""


class RpcError(GatewayError):
    """A JSON-RPC error object (`code`, `message`, maybe `data`) as the answer to a request."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "")))
        self.error = error


def rpc_error(code: int, message: str, **data: object) -> RpcError:
    """A JSON-RPC error of our own; without `data` if there is none."""
    return RpcError({"code": code, "message": message, **({"data": data} if data else {})})


class UnknownTool(GatewayError):
    """No upstream offers a tool of that name."""


class NotApproved(GatewayError):
    """A call needs an approval that nobody gave. It was not made."""


class RequestInvalid(GatewayError):
    """A client's request can't be served as it is; `param` names the field at fault, if there is one."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ModelUnknown(RequestInvalid):
    """A request names a model that no engine serves."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model")


class ContextExceeded(RequestInvalid):
    """A prompt of `tokens` ids does not fit into the engine's context of `context` ids."""

    def __init__(self, message: str, tokens: int, context: int, *, param: str = "messages") -> None:
        super().__init__(message, param=param)
        self.tokens = tokens
        self.context = context


class NotAnswered(GatewayError):
    """Another replica did not answer a request that was to be sent on to it."""

    def __init__(self, message: str, *, asked: bool = False) -> None:
        """`asked`: whether it may have begun to answer."""
        super().__init__(message)
        self.asked = asked


class OwnerGone(NotAnswered):
    """The replica that has what a request names is gone, and the named thing with it."""


class ReplicaBusy(NotAnswered):
    """No connection was free to the replica that has what a request names; a later try may succeed."""


class MapUnknown(GatewayError):
    """A client named a token map that this gateway does not hold."""


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> GatewayError:
    """The first `GatewayError` in a group. A group without one is a bug, and is raised as it is."""
    ours = group.subgroup(GatewayError)
    while isinstance(ours, BaseExceptionGroup):
        ours = ours.exceptions[0]
    if isinstance(ours, GatewayError):
        return ours
    raise group
