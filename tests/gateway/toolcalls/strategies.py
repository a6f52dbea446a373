"""Messages as models write them, beside what a parser must say of them."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

MARKUP = (
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<tool",
    "</tool_",
    "\n",
    "\n<",
    '"',
    "{",
    "}",
    "\\",
    "é",
    "東",
)

_GAP = "\ue000"

tricky_text = st.lists(
    st.one_of(st.sampled_from(MARKUP), st.text(st.characters(exclude_characters="\ue000", codec="utf-8"), max_size=4)),
    max_size=6,
).map("".join)
names = st.text(min_size=1, max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | tricky_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky_text, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(tricky_text, json_values, max_size=3)


@dataclass(frozen=True)
class Told:
    """A message's text, and what it says."""

    text: str
    content: str
    calls: tuple[tuple[str, str], ...]


def spell_call(name: str, given: dict[str, Any] | None, order: str, *, ascii_only: bool, gap: str) -> tuple[str, str]:
    spelled = "{}" if given is None else json.dumps(given, ensure_ascii=ascii_only)
    parts = [f'"name": {json.dumps(name, ensure_ascii=ascii_only)}']
    if given is not None:
        parts.insert(0 if order == "arguments first" else 1, f'"arguments": {spelled}')
    if order == "with an id":
        parts.append('"id": ["x", {"y": 1}]')
    return f"<tool_call>{gap}{{{', '.join(parts)}}}{gap}</tool_call>", spelled


def _prose(text: str) -> str:
    while any(marker in text for marker in ("<tool_call>", "<think>", "</think>")):
        text = text.replace("<tool_call>", "").replace("<think>", "").replace("</think>", "")
    return text


@st.composite
def messages(draw: st.DrawFn) -> Told:
    """Prose, then calls with prose after each."""
    text = content = _prose(draw(tricky_text))
    calls: list[tuple[str, str]] = []
    for name in draw(st.lists(names, max_size=3)):
        spelled, given = spell_call(
            name,
            draw(st.none() | arguments),
            draw(st.sampled_from(["name first", "arguments first", "with an id"])),
            ascii_only=draw(st.booleans()),
            gap=draw(st.sampled_from(["\n", "", " \n"])),
        )
        after = _prose(draw(tricky_text))
        text += spelled + after
        # One newline before a marker is the template's. Whitespace after one counts where it parts text from text.
        content = content.removesuffix("\n") if content.rpartition(_GAP)[2] else content
        calls.append((name, given))
        text_after = after.lstrip(" \t\r\n")
        content += _GAP + (after if text_after and content.replace(_GAP, "") else text_after)
    return Told(text, content.replace(_GAP, ""), tuple(calls))
