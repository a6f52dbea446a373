"""What a request to Anthropic's API wants done to its context: summed up, or without results of earlier calls.

Turns `context_management` and `compaction` into the agent's terms. `clear_thinking` is served only where it keeps all:
taking out the reasoning of one more turn at each request would make the engine process the turns behind it again. An
edit of an unknown type is named and left out. Pure. Source: Anthropic's API reference, "Context editing", "Compaction".
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, cast

from pydantic import Field

from gateway.agent.compaction import Compaction
from gateway.context.history.shortening import Clearing
from gateway.escape import escape_text
from gateway.serve.generation.request_fields import ApiModel, checked_part

_EDITS: Final = 16
_NAMES: Final = 1024
_SHOWN: Final = 64
_COMPACT: Final = "compact_"
_CLEAR_RESULTS: Final = "clear_tool_uses_"
_CLEAR_THINKING: Final = "clear_thinking_"
"""What the types of edits begin with, before a date."""
_THRESHOLD: Final = 150_000
"""Tokens from which on a conversation is summed up, unless the request says otherwise."""
_Count = Annotated[int, Field(ge=0)]
_Names = Annotated[tuple[str, ...], Field(max_length=_NAMES, fail_fast=True)]


class ContextManagement(ApiModel):
    """The field `context_management`."""

    edits: Annotated[tuple[dict[str, Any], ...], Field(max_length=_EDITS, fail_fast=True)] | None = None


class CompactNow(ApiModel):
    """The field `compaction`."""

    type: str = "summarize"
    instructions: str | None = None


class _Amount(ApiModel):
    type: str = "input_tokens"
    value: _Count | None = None


class _Compact(ApiModel):
    trigger: _Amount | None = None
    instructions: str | None = None
    pause_after_compaction: bool | None = None


class _ClearResults(ApiModel):
    trigger: _Amount | None = None
    keep: _Amount | None = None
    clear_at_least: _Amount | None = None
    exclude_tools: _Names | None = None
    clear_tool_inputs: bool | _Names | None = None


class ContextEdits:
    """The edits of one request."""

    def __init__(self, managed: ContextManagement | None, now: CompactNow | None) -> None:
        """Read the fields. Raises `RequestInvalid` that names an invalid edit."""
        self.compaction: Compaction | None = None
        self.clearing: Clearing | None = None
        self.unserved: list[str] = []
        """Names of edits without effect."""
        self.asked = managed is not None
        """Whether the answer says which edits were made."""
        for number, edit in enumerate((managed and managed.edits) or ()):
            self._read(edit, f"context_management.edits[{number}]")
        if now is not None:
            self.compaction = Compaction(instructions=now.instructions or "", ends=True)

    def _read(self, edit: Mapping[str, Any], where: str) -> None:
        kind = str(edit.get("type"))
        if kind.startswith(_COMPACT):
            read = checked_part(_Compact, edit, where)
            threshold = _value(read.trigger, _THRESHOLD)
            self.compaction = Compaction(threshold, read.instructions or "", bool(read.pause_after_compaction))
        elif kind.startswith(_CLEAR_RESULTS):
            self.clearing = _clearing(checked_part(_ClearResults, edit, where))
        elif not (kind.startswith(_CLEAR_THINKING) and _keeps_all(edit.get("keep"))):
            self.unserved.append(f"context_management: {escape_text(kind, _SHOWN)}")


def _clearing(edit: _ClearResults) -> Clearing:
    usual, trigger, inputs = Clearing(), edit.trigger, edit.clear_tool_inputs
    counts_uses = trigger is not None and trigger.type == "tool_uses"
    return Clearing(
        tokens=None if counts_uses else _value(trigger, usual.tokens or 0),
        uses=_value(trigger, 0) if counts_uses else None,
        keep=_value(edit.keep, usual.keep),
        least=None if edit.clear_at_least is None else edit.clear_at_least.value,
        excluded=frozenset(edit.exclude_tools or ()),
        inputs=frozenset(inputs) if isinstance(inputs, Sequence) else bool(inputs),
    )


def _value(amount: _Amount | None, usual: int) -> int:
    return usual if amount is None or amount.value is None else amount.value


def _keeps_all(keep: object) -> bool:
    return keep == "all" or (isinstance(keep, Mapping) and cast("Mapping[str, Any]", keep).get("type") == "all")
