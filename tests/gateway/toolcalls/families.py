"""How a family's models write a message, for the laws that hold for every format: `FAMILIES` is what they run over.

A writer is plain string work, apart from the format's definition, so that a fault of one does not hide in the other.
"""

import json
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.gateway.toolcalls.strategies import arguments as any_arguments
from tests.gateway.toolcalls.strategies import names as any_names

GAP = "\ue000"
words = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,12}", fullmatch=True)
DIGITS = string.ascii_letters + string.digits
ID = 9
"""Characters of a call's id."""


@dataclass(frozen=True)
class Written:
    """One call as the model means it; `given` is the JSON text of its arguments."""

    name: str
    given: str
    id: str


@dataclass(frozen=True)
class Family:
    """One family. `write` spells the calls of one section."""

    format: str
    write: Callable[[Sequence[Written]], str]
    markup: tuple[str, ...]
    think: tuple[str, str] | None = None
    names: st.SearchStrategy[str] = any_names
    arguments: st.SearchStrategy[dict[str, Any]] = any_arguments
    answer: str = ""
    """What stands before content."""
    id_of: Callable[[Written], str] | None = None
    """The id that the message gives a call, where the model writes one."""
    verbatim: bool = True
    """Whether the arguments are the model's own text."""
    data: tuple[str, ...] | None = None
    """The markers that may stand in a string without being meant; None: all of them."""
    begins: bool = False
    """Whether calls have no marker, so that only a message's first ones count whatever they name."""


def spelled(number: int) -> str:
    """The id with this number."""
    return "".join(DIGITS[number // len(DIGITS) ** place % len(DIGITS)] for place in range(ID))


ids = st.integers(0, len(DIGITS) ** ID - 1).map(spelled)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def an_object(call: Written, name: str = "name", arguments: str = "arguments") -> str:
    return f'{{"{name}": {quoted(call.name)}, "{arguments}": {call.given}}}'


def listed(opener: str, between: str, closer: str, one: Callable[[Written], str] = an_object) -> Callable[..., str]:
    return lambda calls: f"{opener}{between.join(map(one, calls))}{closer}"


@dataclass(frozen=True)
class Told:
    """A message's text, and what it says."""

    family: Family
    text: str
    content: str
    reasoning: str
    calls: tuple[Written, ...]


def squeezed(text: str | None) -> str:
    """What is left of a text without its whitespace: the newlines next to markers are markup, in each family's way."""
    return "".join((text or "").split())


def prose_of(family: Family) -> st.SearchStrategy[str]:
    """Text with everything in it but whole markers: their pieces, other markup, characters of several bytes."""
    markers = sorted(family.markup, key=len, reverse=True)
    pieces = [marker[:cut] for marker in markers for cut in (len(marker) // 2, len(marker) - 1)]
    text = st.text(st.characters(exclude_characters=GAP, codec="utf-8"), max_size=5)
    parts = st.lists(st.sampled_from([*filter(None, pieces), "\n", "é東", "</x>", "*"]) | text, max_size=5)

    def clean(parts: list[str]) -> str:
        joined = "".join(parts)
        while any(marker in joined for marker in markers):
            for marker in markers:
                joined = joined.replace(marker, "")
        return joined

    return parts.map(clean)


@st.composite
def _given(draw: st.DrawFn, family: Family) -> str:
    """Arguments, at times with the family's own markers in a string, where they are data."""
    given = draw(family.arguments)
    if draw(st.booleans()):
        markers = family.markup if family.data is None else family.data
        given = {**given, "text": "".join(draw(st.lists(st.sampled_from([*markers, '"', "\\"]), max_size=3)))}
    return json.dumps(given, ensure_ascii=draw(st.booleans()))


@st.composite
def told_by(draw: st.DrawFn, family: Family) -> Told:
    """Reasoning, prose, calls, prose, more calls, prose."""
    prose = prose_of(family)
    text = reasoning = content = ""
    if family.think and draw(st.booleans()):
        reasoning = draw(prose)
        text = f"{family.think[0]}\n{reasoning}\n{family.think[1]}\n\n"
    calls: list[Written] = []
    sizes = draw(st.lists(st.integers(1, 3), max_size=1 if family.begins else 2))
    content = "" if family.begins and sizes else draw(prose) + "."
    text += family.answer + content
    # Family ids are one per message: a model numbers on, it does not begin again.
    some_ids = draw(st.lists(ids, min_size=sum(sizes), max_size=sum(sizes), unique=True))
    for number, size in enumerate(sizes, 1):
        section = [
            Written(draw(family.names), draw(_given(family)), some_id)
            for some_id in some_ids[len(calls) : len(calls) + size]
        ]
        # Before another call a full stop, as before the first: in `>>>>` no marker could be found.
        after = "." + draw(prose) + "." * (number < len(sizes))
        text += family.write(section) + after
        content += after
        calls += section
    return Told(family, text, content, reasoning, tuple(calls))
