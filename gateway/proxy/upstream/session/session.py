"""One negotiated conversation with one MCP server, in the server's era.

Turns a caller's request into the server's era and the answer back into the caller's, and delivers what the server
pushes meanwhile: progress by its token, changes of lists to the session's own cache, the rest to the caller of the
request or the client that owns the session. What could be for several callers is delivered to none. It does not know
that there are other sessions, or how it was opened.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any, Final, Literal, cast

from gateway.config.gateway_config import WantedIds
from gateway.errors import RpcError, rpc_error
from gateway.observe.logs import get_logger
from gateway.protocol.eras import (
    MAP_KEY,
    PROGRESS,
    PROGRESS_KEY,
    SUBSCRIPTION_KEY,
    is_input_required,
    meta_of,
    params_to_handshake,
    params_to_modern,
    result_to_handshake,
    result_to_modern,
    with_meta,
    without_hop,
)
from gateway.protocol.messages import METHOD_NOT_FOUND
from gateway.proxy.caller import NOBODY, NOBODY_MODERN, Caller, ClientSession
from gateway.proxy.results import WrittenIds
from gateway.proxy.transport.transport_interface import Transport
from gateway.proxy.upstream.session.in_flight import FirstQuestions, Requests, Running, all_paused
from gateway.proxy.upstream.session.task_owners import RELATED, TASK_METHODS, TaskOwners, without_extension
from leaf_sdk.leaf.packing import announce_packing

# Packed ids are announced only for calls whose ids are read here: a client that named no map gets its result as it
# came, and could not read packed ids.


def wanted_ids(params: Mapping[str, Any], policy: WantedIds) -> dict[str, Any]:
    """The `_meta` keys for a server under that policy. `params`: as the gateway's endpoints and its agent make them."""
    reader = meta_of(params).get(MAP_KEY)
    if policy == "any" or not isinstance(reader, str):
        return {}
    named = {MAP_KEY: reader}
    return announce_packing(named) if policy == "packed" else named


# `[]` and `true` are read as `{}`, as PHP and hand-written servers mean them, and what is no capability is dropped.

LISTED: Final[tuple[Literal["tools", "prompts", "resources"], ...]] = ("tools", "prompts", "resources")
_OBJECTS: Final = (*LISTED, "logging", "completions", "tasks", "experimental", "extensions")
_TABLES: Final = ("experimental", "extensions")
_FLAGS: Final = ("listChanged", "subscribe")


def read_capabilities(told: object) -> dict[str, Any]:
    """The capabilities of a server, each an object; fields that nobody knows stay as they are."""
    found = cast("dict[str, object]", told) if isinstance(told, dict) else {}
    read: dict[str, Any] = {}
    for name, value in found.items():
        offered = _offered(name, value)
        if offered is not None or name not in _OBJECTS:
            read[name] = value if offered is None else offered
    return read


def declares_lists(capabilities: Mapping[str, Any]) -> bool:
    """Whether there is anything that clients could list."""
    return any(kind in capabilities for kind in LISTED)


def _offered(name: str, value: object) -> dict[str, Any] | None:
    if name not in _OBJECTS:
        return None
    if value is True or value == []:
        return {}
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    if name in _TABLES:
        return {key: {} if each is True or each == [] else each for key, each in fields.items() if _is_table(each)}
    return {key: each for key, each in fields.items() if key not in _FLAGS or isinstance(each, bool)}


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or value is True or value == []


ListKind = Literal["tools", "prompts", "resources"]
CLIENT_INFO: Final = {"name": "codec-gateway", "version": version("codec-gateway")}
UPDATED: Final = "notifications/resources/updated"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
"""The server's acknowledgement of what we listen to; it is for us and never passed on."""
_LOG: Final = "notifications/message"
_ROOTS: Final = "roots/list"
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_CHANGED: Final[Mapping[str, ListKind]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class Session:
    """A conversation. It takes the transport's pushes from the start, and requests after `negotiated`."""

    def __init__(
        self,
        server: str,
        dropped: Callable[[str], None],
        *,
        owner: ClientSession | None = None,
        main: bool = False,
        ids: WantedIds = "any",
        on_list_changed: Callable[[ListKind], None],
        on_updated: Callable[[dict[str, Any]], None],
        on_listening: Callable[[], None] = lambda: None,
        tasks: TaskOwners | None = None,
    ) -> None:
        """`owner`: the only client that the session is for, if any; `main`: it is for all that have none of their own.
        `tasks` outlive the session. `on_listening`
        is called when the server reports changes from now on."""
        self.tasks = TaskOwners() if tasks is None else tasks
        self._ids: WantedIds = ids
        self.server = server
        self.owner = owner
        self._borrower: Caller | None = None
        """Whose requests alone are sent here at the moment."""
        self.announced: frozenset[str] = frozenset()
        """Client capabilities that the server was told of for the whole session."""
        self.told_roots = False
        """Whether the server has asked for roots outside of any request: those that it knows are one client's."""
        self.main = main
        self.questions = FirstQuestions()
        self.transport: Transport | None = None
        self.version = ""
        self.modern = False
        self.capabilities: dict[str, Any] = {}
        self.info: dict[str, Any] = {}
        self.instructions: str | None = None
        self._dropped = dropped
        self._log = get_logger("gateway.proxy").bind(server=server)
        self._on_list_changed = on_list_changed
        self._on_updated = on_updated
        self._on_listening = on_listening
        self._requests = Requests()
        self._progress: dict[int, Running] = {}
        self._tokens = 0

    def negotiated(self, transport: Transport, chosen: str, *, modern: bool, answer: Mapping[str, Any]) -> None:
        """Store the answer to `initialize` or `server/discover`."""
        self.transport, self.version, self.modern = transport, chosen, modern
        self._tokens = transport.first_number
        self.capabilities = read_capabilities(answer.get("capabilities"))
        self.info = _object(answer.get("serverInfo")) or _object(
            meta_of(answer).get("io.modelcontextprotocol/serverInfo")
        )
        words = answer.get("instructions")
        self.instructions = words if isinstance(words, str) else None

    def announce(self, capabilities: Iterable[str]) -> None:
        """Note which client capabilities the server is told of for the whole session."""
        self.announced = frozenset(capabilities)

    def lend(self, borrower: Caller | None) -> None:
        """Note whose requests alone are sent from now on; None: nobody's."""
        self._borrower = borrower

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        caller: Caller = NOBODY,
        *,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
    ) -> dict[str, Any]:
        """Return the answer to a request of `caller`, in the caller's era; `params` as the client sent them.

        Raises:
            PeerError, NoAnswer, LinkLost: see `Transport.request`.
            RpcError: the request is about a task that is not the caller's, or the server began a task under the id of
                another caller's task.
        """
        if self.transport is None:
            raise RuntimeError("a session answers only after its negotiation")
        if of_task := method.startswith(TASK_METHODS):
            self.tasks.check(method, params, caller.principal)
        running = Running(caller, self._requests, self.deliver)
        sent = self._translate(params, caller, running)
        if caller is not NOBODY and caller is not NOBODY_MODERN:
            # An agent's call counts although it takes no pushes: those for it must not go to the only other caller.
            self._requests.begin(running)
        try:
            result = await self.transport.request(method, sent, running, headers=headers, written=written)
        finally:
            self._requests.running.discard(running)
            if running.number is not None:
                del self._progress[running.number]
        if "task" in sent or result.get("resultType") == "task" or of_task:
            result = self.tasks.note(method, sent, result, caller.principal)
        if self.modern:
            # A question is left as it is: `bridge.py` passes it to the client.
            return result if caller.modern or is_input_required(result) else result_to_handshake(result)
        return result_to_modern(method, result, self.info) if caller.modern else result

    def discovered(self, kind: ListKind) -> None:
        """Note that the server lists this although it did not declare it."""
        self.capabilities[kind] = {}

    async def ping(self) -> None:
        """Send a ping of the handshake era and wait for its answer. Raises as `request` does."""
        await self.request("ping", {})

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send the server a notification."""
        if self.transport is not None:
            await self.transport.notify(method, params)

    def _translate(self, params: Mapping[str, Any], caller: Caller, running: Running) -> dict[str, Any]:
        sent = self._on_our_hop(params, caller, running) if "_meta" in params else params
        if "task" in sent and caller.modern != self.modern:
            # The caller could not follow the task in its own era.
            sent = {key: value for key, value in sent.items() if key != "task"}
        if not self.modern:
            return params_to_handshake(sent)
        return params_to_modern(
            sent,
            version=self.version,
            client_info=CLIENT_INFO,
            # JSON can't carry a frozen mapping.
            capabilities=dict(caller.capabilities) if caller.modern else without_extension(caller.capabilities),
            log_level=caller.log_level,
        )

    def _on_our_hop(self, params: Mapping[str, Any], caller: Caller, running: Running) -> dict[str, Any]:
        """The params with a `_meta` for the server, without what was meant for us or names another caller's task."""
        said = meta_of(params)
        if not said:
            return dict(params)
        meta = without_hop(said)
        if PROGRESS_KEY in meta:
            # Two clients may use the same token, so each request to the server gets one of its own.
            self._tokens += 1
            running.number, running.token = self._tokens, meta[PROGRESS_KEY]
            meta[PROGRESS_KEY] = self._tokens
            self._progress[self._tokens] = running
        if RELATED in meta:
            related: object = meta[RELATED]
            task_id = cast("dict[str, Any]", related).get("taskId") if isinstance(related, dict) else None
            if not self.tasks.owns(task_id, caller.principal):
                del meta[RELATED]
        if self._ids != "any":
            meta.update(wanted_ids(params, self._ids))
        return with_meta(params, meta)

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Deliver a push that the transport can't tie to a request (`Exchange`)."""
        self.deliver(method, params, None)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer a question that the transport can't tie to a request (`Exchange`)."""
        self.told_roots = self.told_roots or method == _ROOTS
        with self.questions.one():
            answer = await self.ask(method, params, self._audience(None))
            self.questions.note(method, answer)
            return answer

    async def ask(self, method: str, params: dict[str, Any], audience: Caller | ClientSession) -> dict[str, Any]:
        """Put a question of the server to `audience`."""
        if not self.tasks.may_hear(method, params, audience.principal):
            audience = NOBODY
        with all_paused([running.caller for running in self._requests.running]):
            try:
                return await audience.asked(method, params)
            except RpcError as error:
                # It was told that there are roots to ask for, but nobody who has some can be asked at the moment.
                if method == _ROOTS and "roots" in self.announced and error.error.get("code") == METHOD_NOT_FOUND:
                    return {"roots": []}
                raise

    def deliver(self, method: str, params: dict[str, Any], running: Running | None) -> None:
        """Deliver a notification. `running`: the request on whose stream it came; None: it came on none."""
        if method == PROGRESS:
            self._deliver_progress(params)
        elif (kind := _CHANGED.get(method)) is not None:
            self._on_list_changed(kind)
        elif method == UPDATED:
            self._on_updated(_without_subscription(params))
        elif method == _ACKNOWLEDGED:
            self._on_listening()
        else:
            audience = self._audience(running)
            if method == _LOG and audience is NOBODY:
                self._dropped("nobody")
            wanted = method != _LOG or _wants(audience, params)
            if wanted and self.tasks.may_hear(method, params, audience.principal):
                audience.notified(method, params)

    def _deliver_progress(self, params: dict[str, Any]) -> None:
        number = params.get("progressToken")
        running = self._progress.get(number) if type(number) is int else None
        if running is not None:
            running.caller.notified(PROGRESS, {**params, "progressToken": running.token})

    def _audience(self, running: Running | None) -> Caller | ClientSession:
        """Who gets a push: its request's caller, whoever has the session, or the only caller there is."""
        if running is not None:
            return running.caller
        return self.owner or self._borrower or self._requests.only_caller() or NOBODY


class ForNobody:
    """Answers a server's questions that may be for callers of other workers too: no client is asked (`Exchange`)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Drop it."""

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer as far as no client is needed."""
        return await self._session.ask(method, params, NOBODY)


def cannot_ask(method: str) -> RpcError:
    """The error for a server that asks for something that the client does not offer."""
    return rpc_error(METHOD_NOT_FOUND, f"the client does not support {method!r}")


def _wants(audience: Caller | ClientSession, params: Mapping[str, Any]) -> bool:
    """Whether a log message is as severe as its receiver wants. The server may have been told a lower level."""
    if audience.log_level not in _LEVELS or params.get("level") not in _LEVELS:
        return True
    return _LEVELS.index(params["level"]) >= _LEVELS.index(audience.log_level)


def least_severe(level: str, other: str | None) -> str:
    """The log level of two that lets more through; a word that is not a level is ignored."""
    known = [each for each in (other, level) if each in _LEVELS]
    return min(known, key=_LEVELS.index) if known else level


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _without_subscription(params: dict[str, Any]) -> dict[str, Any]:
    meta = meta_of(params)
    if SUBSCRIPTION_KEY not in meta:
        return params
    return with_meta(params, {key: value for key, value in meta.items() if key != SUBSCRIPTION_KEY})
