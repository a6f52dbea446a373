"""Every sentence of the promises and rules stands in `promises.py`, word for word, and the tests named there exist.

A sentence that changes, a new one, or a test that is renamed fails here: whoever changes it says anew which test would
fail without it. The tests themselves run where they stand.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.promises import ARCHITECTURE, SECURITY, Held

ROOT = Path(__file__).parents[1]
SECTIONS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Held]]] = {
    "SECURITY.md": (("What is promised",), SECURITY),
    "docs/architecture.md": (("Packages and floors", "Rules", "How ids stay exact"), ARCHITECTURE),
}
"""By page: the sections whose numbered and bulleted items are promises, and what is said of their sentences."""
_ITEM = re.compile(r"^(?:\d+\.|-) +(.*(?:\n +.*)*)", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ONLY_LINKS = re.compile(r"\s*\((?:\[[^\]]*\]\([^)]*\)(?:,\s*)?)+\)")
_NEXT = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


def sentences(page: str, headings: tuple[str, ...]) -> Iterator[str]:
    """The sentences of all items in these sections of a page, without emphasis, and without parentheses of links."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for heading in headings:
        _, _, section = text.partition(f"\n## {heading}\n")
        assert section, f"{page} has no section {heading!r} any more"
        for item in _ITEM.findall(section.partition("\n## ")[0]):
            plain = _LINK.sub(r"\1", _ONLY_LINKS.sub("", item)).replace("**", "")
            yield from _NEXT.split(" ".join(plain.split()))


@cache
def functions_of(path: str) -> frozenset[str]:
    """The names of the functions at the top of a module; none where there is no such file."""
    file = ROOT / path
    tree = ast.parse(file.read_bytes()) if file.is_file() else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("page", SECTIONS)
def test_every_sentence_of_a_promise_is_in_the_table_word_for_word(page: str) -> None:
    headings, table = SECTIONS[page]

    assert [each for each in sentences(page, headings) if each not in table] == []


@pytest.mark.parametrize("page", SECTIONS)
def test_table_holds_nothing_that_its_page_does_not_say(page: str) -> None:
    headings, table = SECTIONS[page]

    assert [*table.keys() - set(sentences(page, headings))] == []


@pytest.mark.parametrize("page", SECTIONS)
def test_every_test_that_holds_a_promise_exists(page: str) -> None:
    named = {test for held in SECTIONS[page][1].values() if not isinstance(held, str) for test in held}

    missing = [test for test in sorted(named) if (at := test.partition("::"))[2] not in functions_of(at[0])]
    assert missing == []


@pytest.mark.parametrize("page", SECTIONS)
def test_every_sentence_has_a_test_or_a_word_why_it_has_none(page: str) -> None:
    assert [each for each, held in SECTIONS[page][1].items() if not held] == []
