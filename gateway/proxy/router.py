"""Finds the server that a client's request is for, and turns its answer into the client's.

One function for each method: public names and URIs become an upstream and its own name, the lists of all visible
servers become one. A method that is not MCP's is passed on if there is only one server. It starts nothing and holds no
connection.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Final, cast

import anyio
import anyio.to_thread

from gateway.config.overrides import ApprovalsConfig
from gateway.errors import (
    NotApproved,
    RpcError,
    UnknownTool,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
    rpc_error,
)
from gateway.protocol.eras import MULTI_ROUND, is_input_required
from gateway.protocol.headers import headers_for
from gateway.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from gateway.proxy import tool_search as finder
from gateway.proxy.approvals import GuardedCall, UserApprovals
from gateway.proxy.bridge import Bridge, Parked, answer_rounds, ask_alone, is_parked, to_client, to_server
from gateway.proxy.caller import Caller, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.merged_lists import Lists
from gateway.proxy.naming import ToolEntry, filled
from gateway.proxy.per_user import answered, find_own, refusal
from gateway.proxy.resolver import Resolver, Resources, ResourceWatch
from gateway.proxy.results import CallOutcome, Ending, WrittenIds, ending_by, ending_of, failure, in_era
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.session.task_owners import unknown_task
from gateway.proxy.upstream.supervision.listing import ItemKind
from gateway.proxy.upstream.upstream import Upstream
from gateway.proxy.uris import rename_in_result

_LEVEL_TIME: Final = 5.0
"""Seconds to tell a server which log messages its client wants: clients do this first of all, and wait for it."""
_LISTS: Final[Mapping[str, ItemKind]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "templates",
}
_TASKS: Final = ("tasks/get", "tasks/result", "tasks/cancel", "tasks/update")
_NEED_NOT_WAIT: Final = frozenset({"tools/call", "logging/setLevel"})
"""Methods that decide for themselves whether to wait for servers that are still starting."""
Called = Callable[[str, str, str, str, float], None]
"""Takes a call's server, the tool's own name there, the principal's name, how it ended, and its seconds."""
Handler = Callable[[str, dict[str, Any], Caller], Awaitable[dict[str, Any]]]
_Request = Handler
"""Sends a request to the session that serves its caller, with all else that belongs to the call."""


class Router:
    """Sends each request of a client to its server, or answers it from all servers."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        catalog: Catalog,
        called: Called,
        watch: ResourceWatch,
        ready: Callable[[], Awaitable[None]],
        bridge: Bridge,
        searching: Callable[[], bool],
        approvals: ApprovalsConfig,
        rule: ShareRule,
    ) -> None:
        """Needs no running servers.

        Args:
            called: notes a finished tool call.
            watch, ready: see `Proxy`.
            searching: whether clients see the two tools of `tool_search.py` in place of all tools.
            approvals: which calls need an approval, until `approvals.use`.
            rule: how much one principal's calls may take while they wait for one.
        """
        self._bridge = bridge
        self._searching = searching
        self._upstreams = upstreams
        self._catalog = catalog
        self._called = called
        self._ready = ready
        self._starting = True
        self._lists = Lists(catalog)
        self.resolver = Resolver(upstreams, catalog)
        self.approvals = UserApprovals(approvals, self.resolver, catalog, rule)
        self.resources = Resources(self.resolver, watch, self._ask)
        self._handlers: Mapping[str, Handler] = {
            "tools/call": self._call_result,
            "prompts/get": self._get_prompt,
            "resources/read": self.resources.read,
            "resources/subscribe": self.resources.subscribe,
            "resources/unsubscribe": self.resources.unsubscribe,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
            **dict.fromkeys(_TASKS, self._of_task),
        }

    async def handle(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """See `Proxy.handle`."""
        try:
            kind = _LISTS.get(method)
            if method != "tools/call" and caller.principal.owner:
                await self.resolver.look_up(caller.principal)
            if kind is not None:
                return await self._list(kind, params, caller)
            if self._starting and method not in _NEED_NOT_WAIT:
                await self._ready()
            return await self._handlers.get(method, self._pass_on)(method, params, caller)
        except UnknownTool as error:
            raise rpc_error(INVALID_PARAMS, error.message) from None
        except UpstreamError as error:
            raise rpc_error(INTERNAL_ERROR, error.message, server=error.server) from None

    async def call_tool(
        self,
        params: dict[str, Any],
        caller: Caller,
        *,
        seconds: float | None = None,
        written: WrittenIds | None = None,
        approved: bool = False,
        again: bool = True,
    ) -> CallOutcome:
        """See `Proxy.call_tool`. `again`: whether it is repeated if its user signs in again before it begins."""
        called, arguments = _read_call(params)
        catalog, overriding = self._catalog, self._catalog.naming.has_overrides
        name = catalog.meant(called, caller.principal.view) if overriding else called
        entry = catalog.tools.get(name)
        # Of several servers, one with a tool of this name would get the calls of all others.
        if called in finder.NAMES and self._searching() and (entry is None or len(self._upstreams) > 1):
            return await self._find(params, arguments, caller)
        if entry is None:
            try:
                name, entry = await self._learn(name, caller)
            except UpstreamUnavailable as error:
                return CallOutcome(failure(error.message, modern=caller.modern), "unavailable", error.server)
        upstream, own = self.resolver.tool(name, caller, called)
        server = upstream.config.name
        if upstream.per_user is not None and not caller.principal.alone:
            found = await find_own(upstream, own, params, caller)
            if isinstance(found, CallOutcome):
                return found
            upstream, params, entry = found, answered(params), self.resolver.own_entry(found, own, called, caller)
        if not upstream.up and (upstream.earlier is not None or self.approvals.needs_live(upstream, own, caller)):
            return await self._call_once_up(upstream, own, params, caller, seconds, written, approved)
        named = params if own == called else {**params, "name": own}
        sent = filled(named, catalog.naming.overrides(server, own, caller.principal.view)) if overriding else named
        # The model did not write what it left out.
        written = written if sent is named or written is None else replace(written, ids=None)
        began = perf_counter()
        ended: Ending
        try:
            guarded = (
                await self.approvals.guard(name, entry, sent, caller, (upstream, own), approved=approved)
                if self.approvals.needed
                else None
            )
            # The time in which its user decides is not the call's.
            began = perf_counter()
            # `Mcp-Param-*`, where the tool's schema asks for it (2026-07-28, "Custom headers").
            headers = headers_for(entry.annotations, _read_call(sent)[1]) if entry and entry.annotations else None
            result = await self._ask_once(upstream, "tools/call", sent, caller, seconds, headers, written, guarded)
            ended = ending_of(result)
        except (NotApproved, UpstreamTimeout, UpstreamUnavailable) as error:
            if again and self._is_replaced(upstream, error, params, caller):
                return await self.call_tool(
                    params, caller, seconds=seconds, written=written, approved=approved, again=False
                )
            result, ended = failure(error.message, modern=caller.modern), ending_by(error)
        except BaseException as error:
            # If it is not the server's error, the caller has cancelled the call.
            how = "refused" if isinstance(error, RpcError) else "cancelled"
            self._called(server, own, caller.principal.name, how, perf_counter() - began)
            raise
        took = perf_counter() - began
        self._called(server, own, caller.principal.name, ended, took)
        return CallOutcome(result, ended, server, own, took)

    async def _learn(self, called: str, caller: Caller) -> tuple[str, ToolEntry | None]:
        """The public name of a tool that no list has as it was called, and the tool; None: not all clients see it.

        Raises as `learn_tool`.
        """
        name = self._catalog.aliases.name_of(called)
        entry = self._catalog.tools.get(name)
        if entry is None and self._starting:
            await self._ready()
            name = self._catalog.aliases.name_of(called)
            entry = self._catalog.tools.get(name)
        if entry is None:
            await self.resolver.learn_tool(name, caller)
        return name, entry

    async def _call_once_up(
        self,
        upstream: Upstream,
        own: str,
        params: dict[str, Any],
        caller: Caller,
        seconds: float | None,
        written: WrittenIds | None,
        approved: bool,
    ) -> CallOutcome:
        """Call a tool as its server lists it once it is up: what is known now is from before it was started."""
        try:
            await upstream.supervisor.want()
        except UpstreamUnavailable as error:
            return CallOutcome(failure(error.message, modern=caller.modern), "unavailable", upstream.config.name, own)
        return await self.call_tool(params, caller, seconds=seconds, written=written, approved=approved)

    def started(self) -> None:
        """Note that the start is over, so that requests no longer wait for servers that are starting."""
        self._starting = False

    async def _list(self, kind: ItemKind, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        if params.get("cursor") is not None:
            raise rpc_error(INVALID_PARAMS, "unknown cursor: the list has only one page; ask for it without a cursor")
        result = await self._lists.merged(kind, self.resolver.visible(caller.principal), caller)
        return {**result, "tools": list(finder.DEFINITIONS)} if kind == "tools" and self._searching() else result

    async def _call_result(self, _: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        return (await self.call_tool(params, caller)).result

    async def _find(self, params: dict[str, Any], arguments: Mapping[str, Any], caller: Caller) -> CallOutcome:
        if params["name"] == finder.SEARCH:
            offered = self.resolver.entries(tuple(self._catalog.tools.values()), caller.principal)
            shown = self._catalog.shown(offered, caller.principal)
            found = in_era(await anyio.to_thread.run_sync(finder.search, shown, arguments), modern=caller.modern)
            return CallOutcome(found, ending_of(found), tool=finder.SEARCH)
        # From here on it is as if the tool had been called by its own name: the rest of the request stays the same.
        inner = {key: arguments[key] for key in ("name", "arguments") if arguments.get(key) is not None}
        around = {key: value for key, value in params.items() if key not in ("name", "arguments")}
        return await self.call_tool({**around, **inner}, caller)

    async def _get_prompt(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        name = params.get("name")
        if not isinstance(name, str):
            raise rpc_error(INVALID_PARAMS, "prompts/get needs the prompt's name, as a string, in params.name")
        await self.resolver.learn_prompt(name, caller)
        upstream, own = self.resolver.prompt(name, caller)
        return await self._ask(upstream, method, {**params, "name": own}, caller)

    async def _complete(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        reference: object = params.get("ref")
        ref = cast("dict[str, Any]", reference) if isinstance(reference, dict) else {}
        name, uri = ref.get("name"), ref.get("uri")
        # Of both, only one is looked up; the other may be hidden, and the server would go by the type.
        rest = {key: value for key, value in ref.items() if key not in ("name", "uri")}
        if isinstance(name, str) and ref.get("type") != "ref/resource":
            upstream, own = self.resolver.prompt(name, caller)
            return await self._ask(upstream, method, {**params, "ref": {**rest, "name": own}}, caller)
        if isinstance(uri, str):
            located = self.resolver.locate(uri, caller.principal, caller)
            if located is not None:
                params = {**params, "ref": {**rest, "uri": located.uri}}
                upstream = self.resolver.upstream(located.server, caller.principal)
                return await self._ask(upstream, method, params, caller)
        raise rpc_error(
            INVALID_PARAMS, "completion/complete needs params.ref to name a prompt or a resource that exists"
        )

    async def _set_level(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        visible = self.resolver.visible(caller.principal)
        logging = [each for each in visible if "logging" in each.offers and each.serves(caller.principal)]
        if not logging and not all(each.was_up and each.serves(caller.principal) for each in visible):
            # Logging was announced because a server that was never up may offer it; its session will be told the level.
            return {}
        if not logging:
            raise rpc_error(
                METHOD_NOT_FOUND, "no server behind the gateway sends log messages to clients", method=method
            )
        answers: list[dict[str, Any]] = []
        refused: list[RpcError | UpstreamError] = []

        async def tell(upstream: Upstream) -> None:
            try:
                # In the modern era each request says which messages it wants, and ours do.
                if await upstream.selector.is_modern(caller):
                    answers.append({})
                    return
                level = upstream.selector.level_for(caller, str(params.get("level")))
                answers.append(await self._ask(upstream, method, {**params, "level": level}, caller, _LEVEL_TIME))
            except (RpcError, UpstreamError) as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            for upstream in logging:
                tasks.start_soon(tell, upstream)
        if answers:
            return answers[0]
        raise refused[0]

    async def _of_task(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Send a request about one task to the server on which its caller made the task."""
        for upstream in self.resolver.visible(caller.principal):
            if upstream.has_task(params.get("taskId"), caller):
                return await self._ask(upstream, method, params, caller)
        raise unknown_task(params.get("taskId"))

    async def _pass_on(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Pass on a method that we don't know, but only if a single server is visible."""
        visible = self.resolver.visible(caller.principal)
        if len(visible) != 1:
            raise RpcError({"code": METHOD_NOT_FOUND, "message": "Method not found", "data": method})
        return await self._ask(visible[0], method, params, caller)

    async def _ask(
        self, upstream: Upstream, method: str, params: dict[str, Any], caller: Caller, seconds: float | None = None
    ) -> dict[str, Any]:
        """Send a request other than a call of a tool; once more if its caller signed in again before it began."""
        try:
            return await self._ask_once(upstream, method, params, caller, seconds)
        except UpstreamUnavailable as error:
            if not self._is_replaced(upstream, error, params, caller):
                raise
        newer = self.resolver.upstream(upstream.config.name, caller.principal)
        return await self._ask_once(newer, method, params, caller, seconds)

    def _ask_once(
        self,
        upstream: Upstream,
        method: str,
        params: dict[str, Any],
        caller: Caller,
        seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
        guarded: GuardedCall | None = None,
    ) -> Awaitable[dict[str, Any]]:
        """Send the request, and return its answer with public URIs. `guarded`: see `_ask_rounds`."""
        if upstream.per_user is not None and not caller.principal.alone:
            # Its own upstream would be here if it had one: what all callers share is not for it.
            raise refusal(upstream, caller)
        request = partial(upstream.dispatcher.request, seconds=seconds, headers=headers, written=written)
        if guarded is not None:
            request = partial(request, recheck=guarded.recheck)
        if caller.modern and method in MULTI_ROUND:
            answer = self._ask_rounds(upstream, method, params, caller, request, guarded)
        else:
            answer = self._send(upstream, method, params, caller, request)
        # With one server, no URI carries its server: most calls are spared a frame.
        return answer if len(self._upstreams) == 1 else self._with_public_uris(answer, upstream, caller.principal)

    def _is_replaced(self, upstream: Upstream, error: Exception, params: Mapping[str, Any], caller: Caller) -> bool:
        """Whether a request certainly did not begin at the caller's own upstream, in whose place there is another now,
        because its user has signed in again."""
        common = self._upstreams.get(upstream.config.name)
        if common is None or common.serves(caller.principal) or is_parked(params):
            return False
        is_unbegun = isinstance(error, UpstreamUnavailable) and not error.begun
        return is_unbegun and self.resolver.upstream(upstream.config.name, caller.principal) is not upstream

    async def _with_public_uris(
        self, answer: Awaitable[dict[str, Any]], upstream: Upstream, principal: Principal
    ) -> dict[str, Any]:
        result = await answer
        if not self._catalog.public_uris.several(principal):
            return result
        return rename_in_result(
            result, partial(self._catalog.public_uris.public, upstream.config.name, principal=principal)
        )

    async def _ask_rounds(
        self,
        upstream: Upstream,
        method: str,
        params: dict[str, Any],
        caller: Caller,
        request: _Request,
        guarded: GuardedCall | None,
    ) -> dict[str, Any]:
        """Send a modern caller's request, in as many rounds as the eras of both sides need.

        `guarded`: a call that its user may have to approve before. Then all rounds of the call stay here, so that no
        state that the client could send again stands for the approval.
        """
        if is_parked(params):
            return await self._bridge.resume(method, params, caller)
        # A tool is called in a session of its own only for callers that may be asked.
        aside = (caller.capabilities or method != "tools/call") and await upstream.runs_aside(method, params, caller)
        asks = guarded is not None and guarded.is_open
        if not aside and not asks:
            return await self._send(upstream, method, to_server(params), caller, request)

        async def run(parked: Caller) -> dict[str, Any]:
            if asks and guarded is not None:
                await self.approvals.approve(guarded, parked)
            if aside:
                return await ask_alone(upstream, method, params, parked, guarded and guarded.recheck)
            return await self._send(upstream, method, to_server(params), parked, request)

        return await self._bridge.begin(upstream.config.name, method, params, caller, run)

    async def _send(
        self, upstream: Upstream, method: str, params: dict[str, Any], caller: Caller, request: _Request
    ) -> dict[str, Any]:
        with upstream.used:
            result = await request(method, params, caller)
            if not is_input_required(result):
                return result
            if caller.modern and not isinstance(caller, Parked):
                return to_client(result)

            async def again(sent: dict[str, Any]) -> dict[str, Any]:
                try:
                    return await request(method, sent, caller)
                except UpstreamUnavailable as error:
                    # Its first round ran.
                    raise UpstreamUnavailable(error.message, server=error.server, begun=True) from None

            return await answer_rounds(result, again, params, caller)


def _read_call(params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    name = params.get("name")
    if not isinstance(name, str):
        raise rpc_error(INVALID_PARAMS, "tools/call needs the tool's name, as a string, in params.name")
    arguments: dict[str, Any] | None = params.get("arguments")
    if arguments is not None and not isinstance(arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise rpc_error(INVALID_PARAMS, "tools/call needs params.arguments to be an object")
    return name, arguments or {}
