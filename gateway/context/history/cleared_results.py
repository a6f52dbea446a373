"""Results of earlier calls, taken out of a conversation that has become long.

Clients send the whole history each time, and what was taken out must be the same each time, or the engine's cache is
lost at every request. So the history is walked from its beginning, and at each turn of the model it is decided what was
decided when that turn was asked for. Sizes are told from characters, so that nothing is tokenized for it. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.engine.interface import Message

CLEARED: Final = "[The result of this call was removed to save space.]"
_CHARACTERS: Final = 4
"""Characters that make a token, roughly."""
_LEAST: Final = 16
"""Unless the client says how much has to be gained: one in so many of the tokens at which results are taken out."""
_NO_ARGUMENTS: Final = "{}"


@dataclass(frozen=True, slots=True)
class Clearing:
    """When results are taken out, and which. Amounts are tokens."""

    tokens: int | None = 100_000
    """From so many tokens on; None: whatever it has."""
    uses: int | None = None
    """From so many results on that are still there; None: whatever their number."""
    keep: int = 3
    """How many of the last results stay; those that the model has not read yet stay, too."""
    least: int | None = None
    """How much must be gained; None: enough to pay for what the engine has to process again."""
    excluded: frozenset[str] = frozenset()
    """Names of tools whose results stay, and do not count."""
    inputs: bool | frozenset[str] = False
    """Whether the arguments of these calls are taken out, too, or of calls of which tools."""


@dataclass(frozen=True, slots=True)
class ClearedHistory:
    """A history without some results."""

    messages: Sequence[Message]
    uses: int = 0
    """How many results were taken out."""
    tokens: int = 0
    """What that gained, roughly."""


@dataclass(slots=True)
class _Use:
    """A call with its result."""

    result: int
    """Position of the message with the result."""
    name: str
    call: tuple[int, int] | None
    """Position of the message with the call, and of the call in it."""


def with_cleared_results(messages: Sequence[Message], rule: Clearing) -> ClearedHistory:
    """Return the history without the results that are taken out of it by now."""
    return _Walk(messages, rule).ended()


@dataclass(slots=True)
class _Walk:
    given: Sequence[Message]
    rule: Clearing
    messages: list[Message] = field(default_factory=list[Message])
    size: int = 0
    """Characters so far, without those that were taken out."""
    uses: list[_Use] = field(default_factory=list[_Use])
    """Calls with results, the latest last."""
    first: int = 0
    """Position in `uses` of the first one that is still there."""
    seen: int = 0
    """How many of `uses` the model has answered to."""
    counted: int = 0
    gain: int = 0
    """What the uses from `first` up to `counted` would gain."""
    calls: dict[str, tuple[int, int, str]] = field(default_factory=dict[str, tuple[int, int, str]])
    changed: set[int] = field(default_factory=set[int])
    """Positions of messages whose calls have been copied."""
    gained: int = 0

    def ended(self) -> ClearedHistory:
        for message in self.given:
            if message["role"] == "assistant":
                self._clear_if_due()
                self.seen = len(self.uses)
            self._add(message)
        if self.given and self.given[-1]["role"] != "assistant":
            self._clear_if_due()
        messages = self.messages if self.first else self.given
        return ClearedHistory(messages, self.first, self.gained // _CHARACTERS)

    def _add(self, message: Message) -> None:
        place = len(self.messages)
        self.messages.append(message)
        self.size += len(str(message.get("content") or ""))
        for number, call in enumerate(message.get("tool_calls") or ()):
            self.calls[str(call.get("id"))] = place, number, str(call["function"]["name"])
            self.size += len(str(call["function"]["arguments"]))
        if message["role"] == "tool":
            at = self.calls.get(str(message.get("tool_call_id")))
            name = at[2] if at else ""
            if name not in self.rule.excluded:
                self.uses.append(_Use(place, name, at[:2] if at else None))

    def _clear_if_due(self) -> None:
        rule, there = self.rule, len(self.uses) - self.first
        long = rule.tokens is not None and self.size > rule.tokens * _CHARACTERS
        many = rule.uses is not None and there > rule.uses
        # What the model has not read yet stays.
        last = min(len(self.uses) - rule.keep, self.seen)
        if not (long or many) or last <= self.first:
            return
        for use in self.uses[self.counted : last]:
            self.gain += self._gain(use)
        self.counted = max(last, self.counted)
        if self.gain <= 0 or self.gain < self._least * _CHARACTERS:
            return
        for use in self.uses[self.first : self.counted]:
            self._clear(use)
        self.first, self.gained, self.size, self.gain = self.counted, self.gained + self.gain, self.size - self.gain, 0

    @property
    def _least(self) -> int:
        if self.rule.least is not None:
            return self.rule.least
        return (self.size // _CHARACTERS if self.rule.tokens is None else self.rule.tokens) // _LEAST

    def _takes_input(self, use: _Use) -> bool:
        inputs = self.rule.inputs
        return use.call is not None and (inputs if isinstance(inputs, bool) else use.name in inputs)

    def _gain(self, use: _Use) -> int:
        taken = len(str(self.messages[use.result].get("content") or "")) - len(CLEARED)
        if use.call is not None and self._takes_input(use):
            place, number = use.call
            arguments = self.messages[place]["tool_calls"][number]["function"]["arguments"]
            taken += len(str(arguments)) - len(_NO_ARGUMENTS)
        return taken

    def _clear(self, use: _Use) -> None:
        self.messages[use.result] = {**self.messages[use.result], "content": CLEARED}
        if use.call is None or not self._takes_input(use):
            return
        place, number = use.call
        if place not in self.changed:
            self.changed.add(place)
            self.messages[place] = {**self.messages[place], "tool_calls": list(self.messages[place]["tool_calls"])}
        calls: list[dict[str, Any]] = self.messages[place]["tool_calls"]
        calls[number] = {**calls[number], "function": {**calls[number]["function"], "arguments": _NO_ARGUMENTS}}
