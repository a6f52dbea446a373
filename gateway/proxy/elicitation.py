"""Has calls approved by the users of MCP clients, before they take a place at their servers.

Turns a call into a question, where `approvals.py` says that it needs one, and a question into nothing where the user
accepts it, or into `NotApproved`. Nobody is waited for without a limit.
"""

from collections.abc import Mapping
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
        """Whether any call may need an approval; if not, `question` need not be asked."""

    def needs_live(self, upstream: Upstream, own: str, caller: Caller) -> bool:
        """Whether a call of a tool whose server is not up must wait until it is, since what that lists then may forbid
        the call: annotations for which an approval is needed, or a definition that is not the pinned one."""
        level = level_of(self._settings, *self._catalog.naming.names(upstream.config.name, own, caller.principal.view))
        return upstream.config.pin == "block" or level in ("destructive", "writes")

    def question(
        self,
        name: str,
        entry: ToolEntry | None,
        params: Mapping[str, Any],
        caller: Caller,
        owner: tuple[Upstream, str],
    ) -> Question | None:
        """What the caller's user must be asked before a call; None: nothing.

        Args:
            name: the tool's public name.
            entry: the tool as all clients see it; None: at most this one does.
            owner: its server, and its own name there.

        Raises:
            NotApproved: nobody can be asked.
        """
        upstream, own = owner
        tool = (upstream.config.name, own, caller.principal.view)
        names = self._catalog.naming.names(*tool)
        level = level_of(self._settings, *names)
        if level == "never":
            return None
        if caller.modern and is_parked(params):
            # It continues a call that began here: what had to be asked was asked, and its arguments stay the same.
            return None
        # The caller's own session with the server, if there is one, makes the call: what that lists counts.
        definition = upstream.lists.tool_aside(own, caller) or (None if entry is None else entry.definition)
        if self._catalog.naming.has_overrides:
            definition = overridden(definition or {}, self._catalog.naming.overrides(*tool))
        why = why_asked(level, definition)
        decision = decide(why, can_ask=can_elicit(caller.capabilities))
        if why is None or decision == "run":
            return None
        question = Question(names[-1], upstream.config.name, params.get("arguments") or {}, why, public=name)
        if decision == "refuse":
            raise NotApproved(question.refusal("nobody can be asked here"))
        return question

    async def approve(self, question: Question, caller: Caller) -> None:
        """Return once the caller's user has approved the call.

        Raises:
            NotApproved: the user did not, or could not be asked, or the time is over.
            UnknownTool: the tool is no longer offered to the caller.
        """
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
        self._resolver.tool(question.public, caller)
