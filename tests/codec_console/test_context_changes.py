"""What was deferred, loaded, cleared and compacted, in words, on the pages that show requests."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from codec_console.context_changes import words_of
from gateway.context.compose.recall import Comparison
from gateway.context.memory import ContextChange, RequestFigures

from .test_conversations import ONE, remembered
from .test_conversations import open_pages as open_pages
from .test_why import shown

pytestmark = pytest.mark.anyio

WORDS = {
    ContextChange(
        "deferred", 45_000, 120
    ): "120 tools deferred: about 45,000 tokens of definitions are not in the prompt",
    ContextChange("loaded", 310, 1): "1 deferred tool loaded: about 310 tokens of definitions were added to the prompt",
    ContextChange("cleared", 4000, 3): "3 earlier results cleared: about 4,000 tokens saved",
    ContextChange("summed_up", 6012): "summary written: it replaces the 6,012 tokens of this prompt",
    ContextChange("compacted", 6012, 180): "compacted: a summary of 180 tokens replaced 6,012 tokens",
}


@pytest.mark.parametrize(("change", "words"), WORDS.items())
def test_change_is_a_line_with_its_tokens(change: ContextChange, words: str) -> None:
    assert words_of(change) == words


async def test_conversation_shows_a_line_for_each_change_of_a_request(open_pages) -> None:
    node = remembered()
    assert node.figures is not None
    changed = replace(node, figures=replace(node.figures, changes=tuple(WORDS)))
    async with open_pages(changed) as browser:
        page = await browser.page(ONE)

    assert [each.text for each in page.one("ul", class_="changes").all("li")] == [*WORDS.values()]


async def test_request_without_changes_has_no_such_lines(open_pages) -> None:
    async with open_pages(remembered()) as browser:
        page = await browser.page(ONE)

    assert page.all("ul", class_="changes") == []


async def test_why_shows_them_too(run_console, settings_of, page_of, monkeypatch) -> None:
    figures = RequestFigures(6100, 6012, 6012, 6012, changes=(ContextChange("summed_up", 6012),))
    row = Comparison(datetime(2026, 11, 23, 2, 0, tzinfo=UTC), "ann", 7, "a1", figures)
    page = await shown(run_console, settings_of, page_of, row, monkeypatch=monkeypatch)

    assert page.one("ul", class_="changes").text == WORDS[figures.changes[0]]
