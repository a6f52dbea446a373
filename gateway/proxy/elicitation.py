"""Has calls approved by the users of MCP clients, before they take a place at their servers.

Turns a call into a question, where `approvals.py` says that it needs one, and a question into nothing where the user
accepts it, or into `NotApproved`. Nobody is waited for without a limit.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import anyio

from gateway.config.approvals import ApprovalsConfig
from gateway.errors import NotApproved, RpcError
from gateway.observe.escape import escape_text
from gateway.proxy.approvals import METHOD, Question, can_elicit, decide, level_of, why_asked
from gateway.proxy.caller import Caller
from gateway.proxy.catalog import Catalog
from gateway.proxy.naming import ToolEntry
from gateway.proxy.overrides import overridden
from gateway.proxy.resolver import Resolver
from gateway.proxy.round_states import is_parked
from gateway.proxy.upstream.upstream import Upstream

_WAIT: Final = 600.0
"""Seconds that a user has to answer; as long as a parked call waits for its client's next round."""
_SHOWN: Final = 200
_TIMES: Final = 3
"""How often a user is asked about one call."""


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

    def __init__(self, settings: ApprovalsConfig, resolver: Resolver, catalog: Catalog) -> None:
        """`settings`: those in force until `use`."""
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

    def guard(
        self,
        name: str,
        listed: Callable[[], ToolEntry | None],
        params: Mapping[str, Any],
        caller: Caller,
        owner: tuple[Upstream, str],
        *,
        approved: bool,
    ) -> GuardedCall | None:
        """A call, and whether the caller's user must be asked before it; None: no call has to be approved.

        Args:
            name: the tool's public name.
            listed: returns the tool as all clients see it now; None: at most this one does.
            owner: its server, and its own name there.
            approved: whether exactly this call was approved.

        Raises:
            NotApproved: nobody can be asked.
        """
        # A parked call continues one that began here: what had to be asked was asked, and its arguments stay the same.
        if not self.needed or (caller.modern and is_parked(params)):
            return None
        upstream, own = owner
        judge = partial(self._why, listed, caller, upstream, own)
        why, shown = judge(), self._names(upstream, own, caller)[-1]
        question = Question(shown, upstream.config.name, params.get("arguments") or {}, why or "", public=name)
        decision = decide(why, approved=approved, can_ask=can_elicit(caller.capabilities))
        if decision == "refuse":
            raise NotApproved(question.refusal("nobody can be asked here"))
        lists_own = caller.capabilities and self._goes_by_annotations(upstream, own, caller)
        relist = partial(upstream.lists.get, "tools", caller) if lists_own else None
        return GuardedCall(question, judge, decision == "ask", relist)

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
            NotApproved: the user did not, or could not be asked, or the time is over.
            UnknownTool: the tool is no longer offered to the caller.
        """
        for _ in range(_TIMES):
            await self._ask(call.question, caller)
            self._resolver.tool(call.question.public, caller)
            # Its server may have been restarted meanwhile, and say worse of the tool.
            if call.judge_anew():
                return
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
