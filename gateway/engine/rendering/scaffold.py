"""What a template writes after the model's turn, and to which shapes of conversation it only appends.

A turn that the model has written is never rendered again, so what follows it is taken from a rendering of a turn of the
same kind: with as many calls of the same names, and with words or reasoning before them or not. The place in it where
the model's own text ends is found by the token that ended the model's turn, or by the text that it wrote last.

Rendering a long conversation takes up to a second, but most templates only append to it. Whether one does depends on
the roles, on what is empty and on which turns make calls: the shape. One rendering shows it, and it is remembered. A
repetition counts at most twice, so that a long conversation soon has the same shape as a shorter one. No IO.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final, Literal

from gateway.engine.interface import Message, shared_prefix
from gateway.engine.rendering.foreign_text import Fit, ForeignText, find_marks, pieces_between, restored
from leaf_sdk.vocab import TokenMap

WRITTEN = 64
"""Characters at a turn's end by which the end is found in the template's text."""
_SEAM: Final = 4
"""Ids on either side of a seam that are tokenized again as one text."""
Role = Literal["tool", "user"]
Shape = tuple[str, ...]
_SHAPES_KEPT: Final = 1024
_LONGEST_PART: Final = 6
"""Most messages of a repeated part: a question, two calls with their results, and an answer."""


@dataclass(frozen=True, slots=True)
class TurnShape:
    """What the template's text after a turn of the model depends on."""

    calls: tuple[str, ...] = ()
    """Names of the tools that it called, in order."""
    content: bool = False
    reasoning: bool = False
    tools: bool = False
    """Whether the request offered tools and the template shows them."""
    earlier: tuple[int, ...] = ()
    """Number of calls of each turn before it: some templates count them."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How the model ended a turn."""

    written: str | Callable[[], str] = ""
    """Its last characters (`WRITTEN` are enough), or a function that returns them when they are needed."""
    token: str = ""
    """The text of the token that ended it, which is not part of it; "" if a limit or a stop string ended it."""
    call_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Following:
    """The template's text after a turn."""

    head: str
    """From inside the model's turn to the first content."""
    after: tuple[str, ...]
    """The text after each content; the last one ends where the model continues."""
    fits: tuple[Fit, ...]
    """What the template does to each content."""
    in_call: bool
    """Whether `head` begins inside the last call; otherwise right after the turn's words."""
    foreign: ForeignText
    shows_ids: bool = False
    """Whether it contains ids of calls."""

    @property
    def plain(self) -> tuple[str, ...]:
        """The text without separators, for comparison."""
        return tuple(text.replace(self.foreign.separator, "") for text in (self.head, *self.after))

    def end_of_turn(self, end: TurnEnd) -> int | None:
        """Return the place in `head` where the model's own text ends; None if it can't be found."""
        if not self.in_call:
            return 0
        if end.token and (at := self.head.find(end.token)) >= 0:
            return at
        written = (end.written if isinstance(end.written, str) else end.written())[-WRITTEN:]
        stripped = written.rstrip()
        for size in range(len(stripped), 0, -1):
            at = self.head.find(stripped[-size:])
            # A single letter or digit may occur anywhere.
            if at >= 0 and (size > 1 or not stripped[-1].isalnum()):
                stop = at + size
                blanks = written[len(stripped) :]
                return stop + len(blanks) if self.head.startswith(blanks, stop) else stop
        return None

    def scaffold(self, start: int, call_ids: Sequence[str], token_map: TokenMap) -> "Scaffold":
        """Return the ids from `start` of the head on, with the calls' own ids where the template shows them."""

        def ids(text: str) -> tuple[int, ...]:
            for number, call_id in enumerate(call_ids):
                text = text.replace(self.foreign.call_id(number), self.foreign.text(call_id))
            return tuple(token_map.encode(text, specials=True, separator=self.foreign.separator))

        return Scaffold((ids(self.head[start:]), *map(ids, self.after)), self.fits)


@dataclass(frozen=True, slots=True)
class Scaffold:
    """The ids around contents: one more piece than there are contents."""

    pieces: tuple[tuple[int, ...], ...]
    fits: tuple[Fit, ...]

    @property
    def size(self) -> int:
        """Number of ids without the contents."""
        return sum(map(len, self.pieces))

    def fitted(self, number: int, ids: Sequence[int], token_map: TokenMap) -> Sequence[int]:
        """Return the ids of a content as the template shows it: the same unless it strips or escapes something."""
        fit = self.fits[number]
        if fit == Fit():
            return ids
        text = token_map.decode(ids)
        shown = fit.apply(text)
        return ids if shown == text else token_map.encode(shown)


def layouts(
    shape: TurnShape, role: Role, contents: Sequence[str], foreign: ForeignText
) -> Iterator[tuple[list[Message], bool]]:
    """Yield the ways to show contents after a turn, the usual one first, and whether each shows the turn's calls.

    For a template that refuses several calls in a turn, the last one stands for all. For one without a place for calls,
    the results follow words; for one without a place for results, they are a turn of the user.
    """
    if role == "tool":
        if shape.calls:
            yield _conversation(shape, shape.calls, _results(shape.calls, contents, foreign), foreign), True
        if len(shape.calls) > 1:
            yield _conversation(shape, shape.calls[-1:], _results(shape.calls, contents, foreign), foreign), True
        yield _conversation(shape, (), _results(shape.calls, contents, foreign), foreign), False
    question: Message = {"role": "user", "content": "\n\n".join(contents)}
    yield _conversation(shape, (), [question], foreign), False


def definitions(shape: TurnShape, foreign: ForeignText) -> list[dict[str, Any]]:
    """Return the smallest definitions of tools with which a turn of this shape can be rendered."""
    names = dict.fromkeys(shape.calls) or {"tool": None}
    parameters = {"type": "object", "properties": {"value": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": foreign.text(name), "description": "", "parameters": parameters}}
        for name in names
        if shape.tools
    ]


def following(text: str, foreign: ForeignText, *, in_call: bool) -> Following | None:
    """Find what follows a turn in a rendering; None unless the turn and each content are shown once, in order."""
    text = restored(text, foreign)
    _, anchor, tail = text.rpartition(foreign.anchor)
    marks = find_marks(tail, foreign.mark)
    wanted = list(range(len(foreign.contents)))
    shown = [mark.number for mark in marks] == wanted and tail.count(foreign.mark) == 2 * len(wanted)
    if not anchor or not shown or not all(mark.fit.known for mark in marks):
        return None
    head, *after = pieces_between(tail, marks)
    fits = tuple(mark.fit for mark in marks)
    return Following(head, tuple(after), fits, in_call, foreign, foreign.has_call_id(tail))


def _conversation(
    shape: TurnShape, calls: Sequence[str], turns: Sequence[Message], foreign: ForeignText
) -> list[Message]:
    content = ("." if shape.content else "") if calls else foreign.anchor
    turn: dict[str, Any] = {"role": "assistant", "content": content}
    if shape.reasoning:
        turn["reasoning_content"] = "."
    if calls:
        arguments = json.dumps({"value": foreign.anchor}, ensure_ascii=False)
        turn["tool_calls"] = _calls(calls, arguments, foreign)
    earlier: list[Message] = []
    number = len(shape.calls)
    for count in shape.earlier if calls else ():
        names = (calls[0],) * count
        earlier += [
            {"role": "assistant", "content": "", "tool_calls": _calls(names, "{}", foreign, number)},
            *_results(names, ["."] * count, foreign, number),
        ]
        number += count
    return [{"role": "user", "content": "?"}, *earlier, turn, *turns]


def _calls(names: Sequence[str], arguments: str, foreign: ForeignText, start: int = 0) -> list[dict[str, Any]]:
    functions = [{"name": foreign.text(name), "arguments": arguments} for name in names]
    return [{"type": "function", "id": foreign.call_id(n), "function": each} for n, each in enumerate(functions, start)]


def _results(names: Sequence[str], contents: Sequence[str], foreign: ForeignText, start: int = 0) -> list[Message]:
    known = names or ("tool",) * len(contents)
    return [
        {"role": "tool", "content": content, "tool_call_id": foreign.call_id(n), "name": foreign.text(name)}
        for n, (content, name) in enumerate(zip(contents, known, strict=True), start)
    ]


def counting(shape: TurnShape) -> TurnShape:
    """Return the same shape with one more call before it: if the text then differs, the template counts calls."""
    return replace(shape, earlier=(*shape.earlier, 1))


class Shapes:
    """What is known about one template."""

    def __init__(self) -> None:
        self._known: OrderedDict[Shape, bool] = OrderedDict()

    def appends(self, shape: Shape) -> bool | None:
        """Whether new messages are only appended; None if that is not known yet."""
        return self._known.get(shape)

    def note(self, shape: Shape, appends: bool) -> None:
        """Remember what a rendering has shown. Once a shape was found not to append, that stays."""
        self._known[shape] = appends and self._known.get(shape, True)
        self._known.move_to_end(shape)
        if len(self._known) > _SHAPES_KEPT:
            self._known.popitem(last=False)


def shape_of(
    messages: Sequence[Message],
    new: int,
    *,
    tools: bool,
    inside: Container[int] = (),
    forms: Mapping[int, str] | None = None,
) -> Shape:
    """Return the shape of a conversation.

    Args:
        messages: all its messages.
        new: how many of them, at the end, are to be appended.
        tools: whether the prompt contains definitions of tools.
        inside: turns of the model that were continued within one answer, without a rendering in between.
        forms: how turns of the model were written, by their numbers.
    """
    written = forms or {}
    kinds = [
        f"{_kind(message)}{'+' * (number in inside)}{written.get(number, '')}"
        for number, message in enumerate(messages)
    ]
    split = len(kinds) - new
    return ("tools" if tools else "", *_without_repetition(kinds[:split]), "|", *_without_repetition(kinds[split:]))


def _kind(message: Message) -> str:
    role = str(message["role"])
    if role != "assistant":
        return role if message.get("content") else f"{role} empty"
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    content = str(message.get("content") or "").strip()
    reasoning = str(message.get("reasoning_content") or "").strip()
    return f"assistant {bool(content):d}{bool(reasoning):d}{min(len(calls), 2)}"


def _without_repetition(kinds: Sequence[str]) -> list[str]:
    """Return the same, with each part at most twice in a row."""
    kept: list[str] = []
    for kind in kinds:
        kept.append(kind)
        for size in range(1, _LONGEST_PART + 1):
            part = kept[-size:]
            if len(kept) >= 3 * size and kept[-2 * size : -size] == part and kept[-3 * size : -2 * size] == part:
                del kept[-size:]
                break
    return kept


def joined(content: Sequence[int], after: Sequence[int], token_map: TokenMap) -> tuple[Sequence[int], Sequence[int]]:
    """Return the ids of a content and of the template's text behind it as the tokenizer makes them of one text.

    Many tokenizers have one id for a full stop and the line end behind it; a model that has only ever read that one
    may end its turn at once after the two. An id of both counts as the template's. Where the ids would differ farther
    from the seam than it can see, they stay as they are.
    """
    tail = content[-_SEAM:]
    head = list(takewhile(lambda token_id: token_id not in token_map.special_ids, after[:_SEAM]))
    if not (tail and head and token_map.exact_decode):
        return content, after
    try:
        text = token_map.decode_bytes([*tail, *head]).decode()
    except UnicodeDecodeError:
        return content, after
    ids = token_map.encode(text)
    before, behind = shared_prefix(ids, tail), shared_prefix(ids[::-1], head[::-1])
    near = (before or len(tail) == len(content)) and (behind or len(head) < _SEAM)
    if not near or before == len(tail):
        return content, after
    return content[: len(content) - len(tail) + before], [*ids[before:], *after[len(head) :]]
