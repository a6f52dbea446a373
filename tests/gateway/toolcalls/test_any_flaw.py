"""One flaw at a random place of random arguments, in every format that writes JSON: the call that was meant."""

import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.toolcalls.families import Family
from tests.gateway.toolcalls.test_repairs import WRITES_JSON, call_of
from tests.gateway.toolcalls.test_variations import bare, read

WORDS = st.text(st.sampled_from("ab1 é東👍.,:;/-_+*()[]<>=#\n\t"), max_size=12)
VALUES = st.recursive(
    WORDS | st.booleans() | st.none() | st.integers(-99, 10**9) | st.floats(-9, 9).map(lambda x: round(x, 3)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("k", "key_2", "x")), inner, max_size=3)
    ),
    max_leaves=5,
)
ARGUMENTS = st.fixed_dictionaries({"path": WORDS, "content": WORDS}, optional={"mode": VALUES})
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def between(text: str, change: Callable[[str], str]) -> str:
    """Change what stands between the strings of a JSON text."""
    strings = [*_STRING.findall(text), ""]
    return "".join(change(part) + string for part, string in zip(_STRING.split(text), strings, strict=True))


def raw(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


FLAWS: dict[str, Callable[[Any], str]] = {
    "raw line ends and tabs": lambda given: raw(json.dumps(given, ensure_ascii=False)),
    "Python": repr,
    "Python's words": lambda given: between(
        json.dumps(given), lambda part: part.replace("true", "True").replace("null", "None").replace("false", "False")
    ),
    "commas at the ends": lambda given: between(
        json.dumps(given), lambda part: re.sub(r"(?<![\[{,])([\]}])", r",\1", part) if part.strip("[]{}, ") else part
    ),
    "a comma at the end": lambda given: json.dumps(given)[:-1] + ",}",
    "two commas": lambda given: between(json.dumps(given), lambda part: part.replace(", ", ",, ")),
    "bare keys": lambda given: re.sub(r'"(path|content|mode)": ', r"\1: ", json.dumps(given)),
    "no last brace": lambda given: json.dumps(given)[:-1],
    "a brace too many": lambda given: json.dumps(given) + "}",
    "two braces around": lambda given: "{" + json.dumps(given) + "}",
    "a comment": lambda given: between(json.dumps(given), lambda part: part.replace(", ", ", /* so */ ")),
    "other blanks": lambda given: between(json.dumps(given), lambda part: part.replace(" ", "\u00a0\u3000")),
}
BEHIND = ("no last brace", "a brace too many")
"""Flaws at the end: what follows these arguments may be a part of them in some formats."""
FLAT = ("two commas", "a comment", "other blanks")
"""Flaws behind a string that only the names of the schema's members show: inside other values it may be the string."""


@st.composite
def flawed(draw: st.DrawFn) -> tuple[Family, str, str, Any]:
    flaw, given = draw(st.sampled_from([*FLAWS])), draw(ARGUMENTS)
    if flaw in FLAT:
        given = {name: value for name, value in given.items() if not isinstance(value, list | dict)}
    families = [f for f in WRITES_JSON if f.format not in bare or flaw not in (*BEHIND, "two braces around")]
    family = draw(st.sampled_from([f for f in families if f.format != "mistral_nemo" or flaw not in BEHIND]))
    return family, flaw, FLAWS[flaw](given), given


@given(flawed(), st.lists(st.integers(0, 10_000), max_size=5))
def test_arguments_with_one_flaw_are_the_call_that_was_meant(
    written: tuple[Family, str, str, Any], cuts: list[int]
) -> None:
    family, flaw, text, meant = written
    told = read(family.format, family.answer + call_of(family, text))

    assert told.calls == [("write_file", meant)], (family.format, flaw, text, told)
    assert not told.content.strip()
    assert read(family.format, family.answer + call_of(family, text), cuts) == told
