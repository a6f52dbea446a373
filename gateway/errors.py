"""Every error that the gateway raises on purpose, as one tree.

Callers catch the branch whose way out they know; `message` is written for the person who reads it: it names the thing,
says what was expected and what to do next.

GatewayError
├── ConfigError                 a setting is wrong; nothing was started            exit code 3
│   └── UnknownFormat           no tool-call format of that name (gateway.toolcalls)
├── EngineError                 the engine did not do what was asked
│   ├── EngineUnavailable       it is away, or left in the middle of an answer     exit code 4
│   │   ├── EngineBusy          it has more to do already than may wait
│   │   └── EngineLost          it left where no other engine can go on
│   ├── EngineRefused           it answered with an error of its own
│   │   └── GrammarRefused      it does not take a request's grammar
│   ├── TemplateRefused         its chat template can't express the conversation
│   └── MapDiffers              its tokenizer is not the map's: ids would lie      exit code 4
├── UpstreamError               an MCP server behind us failed
│   ├── UpstreamUnavailable     it is not running, or its connection broke
│   │   ├── SessionGone         a session of it is gone: the request can be put again (gateway.proxy.upstream)
│   │   └── NoCommonEra         it speaks no revision of MCP that we do (gateway.proxy.upstream)
│   └── UpstreamTimeout         it did not answer in time
├── RpcError                    a JSON-RPC error that a client or a server is to be sent
├── UnknownTool                 no upstream offers a tool of that name
├── RequestInvalid              a client asked for something we can't do
│   ├── NotStored               an id names no response that is kept for it (gateway.serve.responses)
│   ├── ModelUnknown            it names a model that no engine serves
│   ├── NotHere                 an address names nothing that the console has (gateway.serve.console)
│   ├── ContextExceeded         its conversation does not fit into the engine's context
│   ├── BodyOverLimit           its body is too large (gateway.serve.http)
│   └── BodyUnread              its body is in a form that is not read (gateway.serve.http)
├── NotAnswered                 another replica did not answer a request
│   ├── OwnerGone               the one that has what it names is gone
│   └── ReplicaBusy             it can't be asked for now
└── MapUnknown                  a client named a map that is not on the allow-list

Some exceptions stand outside the tree, because none of them leaves its package: whoever raises one and whoever catches
it are neighbours, and a caller beyond them gets an error of the tree, or an answer of the protocol in hand.

http1                   NoAnswer, LinkLost
benchmark               AnswerFault
proxy.transport         PeerError, Unfit, SessionForgotten
proxy.upstream          Full
protocol                Unwritable
engine                  FileUnfit
engine.http             StreamSilent, LineOverLimit
replicas                RecordFault, NoRoom
shared                  Unreadable
serve.auth              CredentialRefused, ScopeMissing, CannotTell, MustWait, FetchFailed
serve.console           SignInRefused
serve.mcp               Rejected, ClientGone, _MapRefused
serve.http              _HeadRefused
toolcalls               NotSimple, NotHeld, RegionTooLong, TooMany, _TooMuch
"""

from typing import Any


class GatewayError(Exception):
    """The root of the tree."""

    @property
    def message(self) -> str:
        """The sentence for the person who reads it."""
        return str(self.args[0]) if self.args else type(self).__name__


class ConfigError(GatewayError):
    """A setting is wrong. Raised before anything is started."""


class EngineError(GatewayError):
    """The engine did not do what was asked."""


class EngineUnavailable(EngineError):
    """The engine can't be reached, or its answer broke off in the middle."""


class EngineBusy(EngineUnavailable):
    """The engine is there, and has more to do already than may wait."""


class EngineLost(EngineUnavailable):
    """The engine was lost in the middle of an answer that a grammar holds: no other can go on. What came stands."""


class EngineRefused(EngineError):
    """The engine answered with an error: `status` is its HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class GrammarRefused(EngineRefused):
    """The engine does not take the grammar of a request. Nothing was generated."""


class TemplateRefused(EngineError):
    """The engine's chat template can't express the conversation."""


class MapDiffers(EngineError):
    """The engine's tokenizer gives other ids than the map: the engine route stays closed."""

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
    """The upstream is not running, or its connection broke in the middle of the call."""


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer within the call's time."""


class RpcError(GatewayError):
    """What a request is answered with: a JSON-RPC error object (`code`, `message`, maybe `data`)."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", "")))
        self.error = error


class UnknownTool(GatewayError):
    """No upstream offers a tool of that name."""


class RequestInvalid(GatewayError):
    """A client's request can't be served as it is; `param` names the field at fault, if one is."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ModelUnknown(RequestInvalid):
    """A request names a model that no engine serves."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model")


class ContextExceeded(RequestInvalid):
    """A conversation that the engine's context can't hold: `tokens` of it, where `context` is the most."""

    def __init__(self, message: str, tokens: int, context: int) -> None:
        super().__init__(message, param="messages")
        self.tokens = tokens
        self.context = context


class NotAnswered(GatewayError):
    """Another replica did not answer a request that was to be sent on to it."""

    def __init__(self, message: str, *, asked: bool = False) -> None:
        """`asked`: it may have begun to."""
        super().__init__(message)
        self.asked = asked


class OwnerGone(NotAnswered):
    """The replica that has what a request names is gone, and what it names with it."""


class ReplicaBusy(NotAnswered):
    """A request could not be sent on to the replica that has what it names, for want of connections; it may be soon."""


class MapUnknown(GatewayError):
    """A client named a token map that this gateway does not hold."""


def first_of_ours(group: BaseExceptionGroup[BaseException]) -> GatewayError:
    """The error of ours in a group; a group without one is a fault of the program and is raised as it is."""
    ours = group.subgroup(GatewayError)
    while isinstance(ours, BaseExceptionGroup):
        ours = ours.exceptions[0]
    if isinstance(ours, GatewayError):
        return ours
    raise group
