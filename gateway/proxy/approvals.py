"""Whether a call runs, is refused, or needs an approval first, which users of MCP clients give."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, cast, get_args

import anyio

from gateway.config.overrides import ApprovalsConfig, AskLevel
from gateway.errors import NotApproved, RpcError
from gateway.escape import INVISIBLE, escape_text
from gateway.proxy.bridge import is_parked
from gateway.proxy.caller import Caller
from gateway.proxy.catalog import Catalog
from gateway.proxy.naming import ToolEntry, overridden, usual_alias
from gateway.proxy.resolver import Resolver
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.upstream import Upstream

# Annotations are hints of the server's: where one is missing or malformed, the default of the MCP specification counts
# (not read-only, destructive). A request can only be stricter than the operator.

Decision = Literal["run", "ask", "refuse"]
_FROM_LOOSEST: Final[tuple[AskLevel, ...]] = get_args(AskLevel)
_NAME: Final = 128
_ARGUMENTS: Final = 2000
"""Characters of a call's arguments that a person or a model is shown."""
_MOST: Final = 40
"""Arguments of which each is shown, with at least its beginning: none hides behind a long one before it."""
METHOD: Final = "elicitation/create"


@dataclass(frozen=True, slots=True)
class Question:
    """A call that needs an approval."""

    tool: str
    """Its name as the caller sees it."""
    server: str
    arguments: Mapping[str, Any]
    why: str
    """Why it needs one, as a clause about the tool."""
    public: str = ""
    """The tool's public name."""

    @property
    def params(self) -> dict[str, Any]:
        """What the user of an MCP client is asked (`elicitation/create`); accepting the empty form approves it."""
        message = f"May the tool {self._shown} be called? {self.why[:1].upper()}{self.why[1:]}.\n{self._arguments}"
        return {"message": message, "requestedSchema": {"type": "object", "properties": {}}}

    def refusal(self, cause: str) -> str:
        """What a model is told instead of a result. `cause`: why there is no approval."""
        return (
            f"refused: the tool {self._shown} was not called. Its calls need an approval ({self.why}), and {cause}. "
            f"{self._arguments}\nTell the user what you wanted to do and ask how to go on; "
            "do not try to get the same effect another way."
        )

    @property
    def _shown(self) -> str:
        return f"{escape_text(self.tool, _NAME)!r} of server {self.server!r}"

    @property
    def _arguments(self) -> str:
        whole = _json(self.arguments)
        if len(whole) <= _ARGUMENTS:
            # Spelled out, an invisible character is up to ten.
            return f"Its arguments: {escape_text(whole, 10 * _ARGUMENTS, INVISIBLE)}"
        return (
            f"Its arguments are {len(whole)} characters, too many to be shown here; once the call is refused, the "
            "audit log has all of them if audit.arguments is true. "
            f"The beginning of each: {_cut_arguments(self.arguments)}"
        )


def _cut_arguments(arguments: Mapping[str, Any]) -> str:
    """The beginning of each argument, and how many characters are left out."""
    # Only of those that are shown: to write 200,000 one by one takes the event loop a second.
    shown = [f"{_json(name)}: {_json(value)}" for name, value in islice(arguments.items(), _MOST)]
    share, room = _ARGUMENTS, _ARGUMENTS
    # What short ones leave is for the long ones.
    for left, length in zip(range(len(shown), 0, -1), sorted(map(len, shown)), strict=True):
        share = room // left
        room -= min(length, share)
    more = f", and {len(arguments) - _MOST} more arguments" if len(arguments) > _MOST else ""
    return "{" + ", ".join(escape_text(part, share, INVISIBLE) for part in shown) + "}" + more


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def why_asked(level: AskLevel, definition: Mapping[str, Any] | None) -> str | None:
    """Why calls of a tool need an approval; None: they need none. `level`: from `level_of`. `definition`: as clients
    see it; None: it is not known."""
    if level == "always":
        return "the operator wants every call of it approved"
    annotations = _annotations(definition)
    if level != "never" and annotations.get("readOnlyHint") is not True:
        if annotations.get("destructiveHint") is not False:
            return "it may delete or overwrite something"
        if level == "writes":
            return "it may change something"
    return None


def decide(why: str | None, *, approved: bool = False, can_ask: bool = False) -> Decision:
    """What becomes of a call.

    Args:
        why: from `why_asked`.
        approved: whether exactly this call was approved, by somebody who was asked or who makes it by hand.
        can_ask: whether somebody can be asked.
    """
    if why is None or approved:
        return "run"
    return "ask" if can_ask else "refuse"


def level_of(settings: ApprovalsConfig, *names: str) -> AskLevel:
    """How strict the operator is about a tool: the strictest level of its names (`Naming.names`)."""
    levels: list[AskLevel] = [_level_of(settings, name) for name in names] if settings.tools else [settings.ask]
    return max(levels, key=_FROM_LOOSEST.index)


def _level_of(settings: ApprovalsConfig, tool: str) -> AskLevel:
    """The level of a name, or of its alias, which clients may see instead."""
    # Not the alias in force: a server could change that by another tool of this name.
    names = {tool, usual_alias(tool)}
    levels: list[AskLevel] = [settings.tools[name] for name in names if name in settings.tools]
    if not levels:
        levels = [level for each, level in settings.tools.items() if any(fnmatchcase(name, each) for name in names)]
    return max(levels, key=_FROM_LOOSEST.index) if levels else settings.ask


def is_read_only(definition: Mapping[str, Any]) -> bool:
    """Whether a server annotates a tool as read-only."""
    return _annotations(definition).get("readOnlyHint") is True


def can_elicit(capabilities: Mapping[str, Any]) -> bool:
    """Whether a client with these capabilities shows its user forms: those that name no mode do (2025-11-25)."""
    modes: object = capabilities.get("elicitation")
    return isinstance(modes, Mapping) and (not modes or "form" in modes)


def _annotations(definition: Mapping[str, Any] | None) -> Mapping[str, Any]:
    annotations: object = None if definition is None else definition.get("annotations")
    return cast("Mapping[str, Any]", annotations) if isinstance(annotations, Mapping) else {}


_WAIT: Final = 600.0
"""Seconds that a user has to answer; as long as a parked call waits for its client's next round."""
_SHOWN: Final = 200
_TIMES: Final = 3
"""How often a user is asked about one call."""
_WAITING: Final = 256 * 1024 * 1024
"""Bytes that all calls take that wait for an approval: unlike others, they need no place at a server."""
_VALUE_BYTES: Final = 100
"""Bytes that a list, an object or a member takes besides its JSON, roughly."""


@dataclass(slots=True)
class GuardedCall:
    """A call that may need an approval. It is judged when it comes, once it is approved, and before it is repeated."""

    question: Question
    """Why it needs one, as far as it is known; "": it needs none."""
    judge: Callable[[], str | None]
    """Why it needs one by what its server lists now; None: it needs none."""
    is_open: bool
    """Whether somebody has to be asked before it is made."""
    relist: Callable[[], Awaitable[object]] | None
    """Has the server list its tools on a new session of the caller's own; None: what it lists to all counts, and that
    is known again whenever it was restarted."""
    size: int = 0
    """Bytes that it takes while it waits for an approval, roughly."""

    def judge_anew(self) -> bool:
        """Whether it needs an approval for the same reason as before, or none. If not, the new reason is noted."""
        why = self.judge()
        if why in (None, self.question.why):
            return True
        self.question = replace(self.question, why=why)
        return False

    async def recheck(self) -> None:
        """Check it before it is repeated on a server that was restarted.

        Raises:
            NotApproved: it needs an approval for a reason for which it has none.
            UpstreamUnavailable: the server does not list its tools.
        """
        if self.relist is not None:
            await self.relist()
        if self.judge_anew():
            return
        cause = "its server was restarted before it began, and says something else of the tool now: call it again"
        raise NotApproved(self.question.refusal(cause))


class UserApprovals:
    """The approvals that users of MCP clients give."""

    def __init__(self, settings: ApprovalsConfig, resolver: Resolver, catalog: Catalog, rule: ShareRule) -> None:
        """`settings`: those in force until `use`; `rule`: how much one principal's calls may take while they wait."""
        self._waiting = rule.shares("parked_call", _WAITING, "bytes for calls that wait for an approval")
        self._catalog = catalog
        self._resolver = resolver
        self.use(settings)

    def use(self, settings: ApprovalsConfig) -> None:
        """Go by these settings from now on."""
        self._settings = settings
        self.needed = settings.ask != "never" or bool(settings.tools)
        """Whether any call may need an approval; if not, `guard` returns None."""

    def needs_live(self, upstream: Upstream, own: str, caller: Caller) -> bool:
        """Whether a call of a tool whose server is not up must wait until it is, since what that lists then may forbid
        the call: annotations for which an approval is needed, or a definition that is not the pinned one."""
        return upstream.config.pin == "block" or self._goes_by_annotations(upstream, own, caller)

    def _goes_by_annotations(self, upstream: Upstream, own: str, caller: Caller) -> bool:
        return level_of(self._settings, *self._names(upstream, own, caller)) in ("destructive", "writes")

    def _names(self, upstream: Upstream, own: str, caller: Caller) -> Sequence[str]:
        return self._catalog.naming.names(upstream.config.name, own, caller.principal.view)

    async def guard(
        self,
        name: str,
        earlier: ToolEntry | None,
        params: Mapping[str, Any],
        caller: Caller,
        owner: tuple[Upstream, str],
        *,
        approved: bool,
    ) -> GuardedCall | None:
        """A call that the user of a handshake-era caller has approved where that is needed; None: no call has to be.

        A modern caller's user is asked later, in a round.

        Args:
            name: the tool's public name.
            earlier: the tool as it was listed, unless it is listed now.
            owner: its server, and its own name there.
            approved: whether exactly this call was approved.

        Raises:
            NotApproved: nobody can be asked, or the user refused.
        """
        # A parked call continues one that began here: what had to be asked was asked, and its arguments stay the same.
        if not self.needed or (caller.modern and is_parked(params)):
            return None
        upstream, own = owner
        is_common = self._resolver.is_common(upstream)

        def listed() -> ToolEntry | None:
            known = self._catalog.tools.get(name) if is_common else self._resolver.entry(name, caller.principal)
            return known or earlier

        judge = partial(self._why, listed, caller, upstream, own)
        why, shown = judge(), self._names(upstream, own, caller)[-1]
        question = Question(shown, upstream.config.name, params.get("arguments") or {}, why or "", public=name)
        decision = decide(why, approved=approved, can_ask=can_elicit(caller.capabilities))
        if decision == "refuse":
            raise NotApproved(question.refusal("nobody can be asked here"))
        lists_own = caller.capabilities and self._goes_by_annotations(upstream, own, caller)
        relist = partial(upstream.lists.get, "tools", caller) if lists_own else None
        is_open = decision == "ask"
        guarded = GuardedCall(question, judge, is_open, relist, _size_of(params) if is_open else 0)
        if guarded.is_open and not caller.modern:
            await self.approve(guarded, caller)
        return guarded

    def _why(self, listed: Callable[[], ToolEntry | None], caller: Caller, upstream: Upstream, own: str) -> str | None:
        level = level_of(self._settings, *self._names(upstream, own, caller))
        if level == "never":
            return None
        # The caller's own session with the server, if there is one, makes the call: what that lists counts.
        definition = upstream.lists.tool_aside(own, caller)
        if definition is None and (entry := listed()) is not None:
            definition = entry.definition
        if (naming := self._catalog.naming).has_overrides:
            overrides = naming.overrides(upstream.config.name, own, caller.principal.view)
            definition = overridden(definition or {}, overrides)
        return why_asked(level, definition)

    async def approve(self, call: GuardedCall, caller: Caller) -> None:
        """Return once the caller's user has approved the call, by what its server says of the tool then.

        Raises:
            NotApproved: the user did not, or could not be asked, or the time is over, or too many wait already.
            UnknownTool: the tool is no longer offered to the caller.
        """
        principal = caller.principal
        if (over := self._waiting.take(principal, call.size)) is not None:
            raise NotApproved(call.question.refusal(f"nobody was asked: {over.message}"))
        try:
            for _ in range(_TIMES):
                await self._ask(call.question, caller)
                self._resolver.tool(call.question.public, caller)
                # Its server may have been restarted meanwhile, and say worse of the tool.
                if call.judge_anew():
                    return
        finally:
            self._waiting.give_back(principal, call.size)
        raise NotApproved(call.question.refusal("what its server says of it keeps changing"))

    async def _ask(self, question: Question, caller: Caller) -> None:
        try:
            with anyio.fail_after(_WAIT):
                answer = await caller.asked(METHOD, question.params)
        except TimeoutError:
            raise NotApproved(question.refusal(f"nobody answered within {_WAIT:g} s")) from None
        except RpcError as error:
            cause = f"the client could not ask its user: {escape_text(error.message, _SHOWN)}"
            raise NotApproved(question.refusal(cause)) from None
        if answer.get("action") != "accept":
            raise NotApproved(question.refusal("the user did not approve this one"))


def _size_of(params: Mapping[str, Any]) -> int:
    text = _json(params)
    return len(text) + _VALUE_BYTES * sum(map(text.count, "[{:,"))
