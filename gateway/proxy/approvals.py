"""Whether a call runs, needs an approval first, or is refused.

Turns a tool's annotations, the operator's settings and what the request itself wants into one decision. Annotations are
hints of the server's: where one is missing or malformed, the default of the MCP specification counts (not read-only,
destructive). A request can only be stricter than the operator. Pure: it asks nobody.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, cast, get_args

from gateway.config.approvals import ApprovalsConfig, Ask
from gateway.observe.escape import INVISIBLE, escape_text
from gateway.proxy.aliases import usual_alias

Decision = Literal["run", "ask", "refuse"]
_FROM_LOOSEST: Final[tuple[Ask, ...]] = get_args(Ask)
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
    parts = [f"{_json(name)}: {_json(value)}" for name, value in arguments.items()]
    shown = parts[:_MOST]
    share, room = _ARGUMENTS, _ARGUMENTS
    # What short ones leave is for the long ones.
    for left, length in zip(range(len(shown), 0, -1), sorted(map(len, shown)), strict=True):
        share = room // left
        room -= min(length, share)
    more = f", and {len(parts) - _MOST} more arguments" if len(parts) > _MOST else ""
    return "{" + ", ".join(escape_text(part, share, INVISIBLE) for part in shown) + "}" + more


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def why_asked(level: Ask, definition: Mapping[str, Any] | None, *, wanted: bool = False) -> str | None:
    """Why calls of a tool need an approval; None: they need none.

    Args:
        level: from `level_of`.
        definition: as clients see it; None: it is not known.
        wanted: whether the request wants to approve them, whatever the operator says.
    """
    if level == "never" and not wanted:
        return None
    if level == "always":
        return "the operator wants every call of it approved"
    annotations = _annotations(definition)
    if level != "never" and annotations.get("readOnlyHint") is not True:
        if annotations.get("destructiveHint") is not False:
            return "it may delete or overwrite something"
        if level == "writes":
            return "it may change something"
    return "the request wants to approve its calls" if wanted else None


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


def level_of(settings: ApprovalsConfig, *names: str) -> Ask:
    """How strict the operator is about a tool: the strictest level of its names (`Naming.names`)."""
    levels: list[Ask] = [_level_of(settings, name) for name in names] if settings.tools else [settings.ask]
    return max(levels, key=_FROM_LOOSEST.index)


def _level_of(settings: ApprovalsConfig, tool: str) -> Ask:
    """The level of a name, or of its alias, which clients may see instead."""
    # Not the alias in force: a server could change that by another tool of this name.
    names = {tool, usual_alias(tool)}
    levels: list[Ask] = [settings.tools[name] for name in names if name in settings.tools]
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
