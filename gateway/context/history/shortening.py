"""A history made shorter: results of earlier calls taken out, or a summary in place of its earlier part. Pure.

Clients send the whole history each time, and what was taken out must be the same each time, or the engine's cache is
lost at every request. So the history is walked from its beginning, and at each turn of the model it is decided what was
decided when that turn was asked for. Sizes are told from characters, so that nothing is tokenized for it.

A conversation that was compacted goes on behind its preamble and one message of the user's, which holds the summary and
the user's last words, so that what an API sends back needs nothing of what it replaces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.config.overrides import RESULT_TOOLS
from gateway.context.memory import FOUND_TOOLS, SUMMARY, KeptResult
from gateway.engine.interface import Message

CLEARED: Final = "[The result of this call was removed to save space.]"
_CHARACTERS: Final = 4
"""Characters that make a token, roughly."""
_LEAST: Final = 16
"""Unless the client says how much has to be gained: one in so many of the tokens at which results are taken out."""
_NO_ARGUMENTS: Final = "{}"
_HEAD: Final = "The earlier part of this conversation was replaced by this summary of it:"
_LAST: Final = "The user's last message was:"
_READ, _SEARCH = RESULT_TOOLS
_KEPT: Final = (
    "These results were too long to show and are still kept whole. Read on in one by its handle with "
    f"{_READ}, or find words in it with {_SEARCH}:"
)
_MOST_KEPT: Final = 16
_LONGEST_SHAPE: Final = 120
INSTRUCTION: Final = (
    "Stop here and write a summary of this conversation. It will replace the conversation, so that you can go on "
    "without it. Say what the user wants, in the user's own words; what was done and found out, with names, paths, "
    "numbers and decisions that are still needed; and what has to be done next. Write only the summary, and call no "
    "tool."
)
"""What the model is told, unless the client has words of its own."""


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


def summary_text(summary: str, behind: str, kept: Sequence[KeptResult] = ()) -> str:
    """Return the text of the message that stands for the earlier part.

    Args:
        summary: the model's own words.
        behind: what is quoted behind the summary.
        kept: results in which the model can still read on, the latest last.
    """
    return _joined(_HEAD, summary, _named(kept), behind)


def _named(kept: Sequence[KeptResult]) -> str:
    if not kept:
        return ""
    lines = [f"- {each.handle}: {each.tokens:,} tokens of {each.tool}; {_short(each.shape)}" for each in kept]
    # A call with another handle is answered with all of them.
    left = len(lines) - _MOST_KEPT
    more = [f"- {left} older ones: a call with the handle 'list' names them"] if left > 0 else []
    return "\n".join((_KEPT, *lines[-_MOST_KEPT:], *more))


def _short(shape: str) -> str:
    return shape if len(shape) <= _LONGEST_SHAPE else f"{shape[:_LONGEST_SHAPE]}..."


def last_words(messages: Sequence[Message], most: int) -> str:
    """Return the user's last words, to be quoted behind a summary that covers them: `most` characters of each message.

    Words that a client sends beside results of calls do not count, except for the last: agents use them for reminders.
    """
    runs: list[tuple[str, list[str]]] = []
    before = ""
    for message in messages:
        if message["role"] == "user":
            runs = runs if before == "user" else [*runs[-2:], (before, [])]
            runs[-1][1].append(str(message["content"]))
        before = message["role"]
    asked = next((texts for after, texts in reversed(runs) if after != "tool"), list[str]())
    beside = runs[-1][1] if runs and runs[-1][0] == "tool" and before == "user" else []
    return _quoted([_beginning(text, most) for text in (*asked, *beside)])


def words_behind(rest: Sequence[Message]) -> str:
    """Return what is quoted of the messages behind the part that is summed up: all of it, as text."""
    said = [str(message["content"]) for message in rest if message["role"] == "user"]
    parts = [_told(message) for message in rest if message["role"] in ("assistant", "tool")]
    return _joined(*parts, _quoted(said))


def _told(message: Message) -> str:
    if message["role"] == "tool":
        return _joined("The result of the call:", str(message["content"]))
    functions = (call["function"] for call in message.get("tool_calls") or ())
    calls = (f"You called {each['name']} with {each['arguments']}" for each in functions)
    return _joined(str(message.get("content") or ""), *calls)


def _beginning(text: str, most: int) -> str:
    if text.startswith(_HEAD):
        # These words stand for an earlier part themselves.
        text = text.partition(f"{_LAST}\n\n")[2]
    return text if len(text) <= most else f"{text[:most]} [...]"


def _quoted(texts: Sequence[str]) -> str:
    said = _joined(*texts)
    return _joined(_LAST, said) if said else ""


def with_instruction(messages: Sequence[Message], words: str) -> list[Message]:
    """Return the messages that make the model write a summary of them."""
    if messages[-1]["role"] != "user":
        return [*messages, {"role": "user", "content": words}]
    return [*messages[:-1], {**messages[-1], "content": _joined(str(messages[-1]["content"]), words)}]


def after_summary(
    messages: Sequence[Message], text: str, found: Sequence[str] = (), system: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return what is left of the messages when a summary stands for them: the system's words, then the summary.

    Args:
        messages: the messages that it stands for.
        text: see `summary_text`.
        found: tools that the model had found, which are defined anew.
        system: words of the system's that are kept with the summary, in case its client has dropped them.
    """
    left = [dict(message) for message in messages if message["role"] in ("system", "developer")]
    known = {str(message["content"]) for message in left}
    left += [{"role": "system", "content": words} for words in system if words not in known]
    names: dict[str, Any] = {FOUND_TOOLS: tuple(found)} if found else {}
    # Whoever wrote it: by its beginning the message is known.
    told = text if text.startswith(_HEAD) else _joined(_HEAD, text)
    return [*left, {"role": "user", "content": told, SUMMARY: told, **names}]


def add_message(messages: list[dict[str, Any]], message: dict[str, Any]) -> bool:
    """Append a message; False: it was joined with the summary before it, since templates take turns."""
    if messages and message["role"] == "user" and is_summary(messages[-1]):
        messages[-1] = {**messages[-1], "content": _joined(messages[-1]["content"], message["content"])}
        return False
    messages.append(message)
    return True


def is_summary(message: Message) -> bool:
    """Whether a message stands for an earlier part."""
    return message["role"] == "user" and str(message["content"]).startswith(_HEAD)


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))
