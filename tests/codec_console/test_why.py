"""What the console shows of lost ids: figures and advice always, words only where they may be shown."""

from datetime import UTC, datetime

import pytest

from codec_console.why import Row
from gateway.config.access import ConsoleConfig
from gateway.config.gateway_config import ServeConfig
from gateway.context.compose.recall import Comparison
from gateway.context.memory import Miss, RequestFigures
from tests.cases import each_of

pytestmark = pytest.mark.anyio
SECRET = "t0ken-t0ken-t0ken"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202egnp.exe\x00" + SECRET


def lost(**more: object) -> Comparison:
    miss = Miss("client_changed", 500, 3, 41, was=f"the clock says {HOSTILE}", now="the clock says 9:41")
    counts = {"prompt": 1600, "cached": 60, "held": 1500, "reused": 60, "recomputed": 1440}
    figures = {**counts, "reason": "client_changed", "recall_miss": miss, **more}
    told = RequestFigures(**figures)  # pyright: ignore[reportArgumentType]
    return Comparison(datetime(2026, 11, 23, 2, 0, tzinfo=UTC), "laptop <b>", 7, "a1", told)


async def shown(run_console, settings_of, page_of, *rows: Comparison, texts: str = "off", monkeypatch):
    config = settings_of(console=ConsoleConfig(texts=texts, token="x" * 40), serve=ServeConfig(token=SECRET))
    async with run_console(config) as site:
        monkeypatch.setattr(site.services.agent.recall, "last", lambda: list(rows))
        await site.browser.sign_in()
        answer = await site.browser.get("/console/why")
    assert answer.status_code == 200
    return page_of(answer.text)


async def test_each_request_is_a_row_with_its_figures_and_what_mends_it(
    run_console, settings_of, page_of, monkeypatch
) -> None:
    whole = lost(prompt=12, cached=10, held=10, reused=10, recomputed=0, reason=None, recall_miss=None)
    page = await shown(run_console, settings_of, page_of, lost(), whole, monkeypatch=monkeypatch)

    first, second = page.all("li", class_="card row")
    assert "1,440 recomputed: the client changed an earlier message" in first.text
    assert "60 of 1,600 prompt tokens cached" in first.text
    assert "engine.volatile" in first.one(class_="advice").text
    assert "message 3 changes at character 41" in first.text
    bar = first.one("progress").attributes
    assert (bar["value"], bar["max"]) == ("60", "1600")
    assert first.one("progress").text == "4 %"
    assert "nothing recomputed" in second.text
    assert second.all(class_="advice") == []
    assert page.one(class_="figures").one("dt").text == "client_changed"
    assert page.one(class_="figures").one("dd").text == "1,440 tokens"


@each_of(
    ("cached", "shown"),
    [(0, "0"), (3, "<1"), (8, "<1"), (9, "1"), (404, "50"), (799, "99"), (805, ">99"), (808, "100")],
)
async def test_share_of_cached_tokens_is_never_rounded_to_none_or_all(cached: int, shown: str) -> None:
    figures = RequestFigures(808, cached, 0, 0, 0)
    row = Row(datetime(2026, 11, 23, tzinfo=UTC), "c", None, "a", figures, None, None, None)

    assert row.cached_percent == shown


async def test_page_is_made_anew_only_where_a_request_came(run_console, settings_of) -> None:
    async with run_console(settings_of(console=ConsoleConfig(texts="on", token="x" * 40))) as site:
        await site.browser.sign_in()
        last = site.services.agent.recall._last
        last.append(lost())
        page = await site.browser.get("/console/why")
        known = {"if-none-match": page.headers["etag"]}
        same = await site.browser.get("/console/why", **known)
        last.append(lost(cached=61))
        later = await site.browser.get("/console/why", **known)

    assert (page.status_code, same.status_code, later.status_code) == (200, 304, 200)
    # The tag is of what the page shows, and none of it can be read there.
    assert len(known["if-none-match"]) == len(later.headers["etag"]) == 34


async def test_words_stay_unseen_unless_the_settings_show_them(run_console, settings_of, page_of, monkeypatch) -> None:
    page = await shown(run_console, settings_of, page_of, lost(), monkeypatch=monkeypatch)

    assert "the clock says" not in page.text
    assert page.all("figure") == []
    assert "only counts and sources" in page.one("footer").text


async def test_words_that_changed_are_text_for_html_and_for_eyes_and_hold_no_secret(
    run_console, settings_of, page_of, monkeypatch
) -> None:
    page = await shown(run_console, settings_of, page_of, lost(), texts="on", monkeypatch=monkeypatch)

    change = page.one("figure", class_="change")
    (was,), (now,) = change.all("del"), change.all("ins")
    assert was.text == "<script>alert(1)</script><img src=x onerror=alert(1)>\\x1b[31m\\u202egnp.exe\\x00****"
    assert now.text == "9:41"
    assert [each.tag for each in change.all()] == ["figcaption", "p", "span", "code", "del", "p", "span", "code", "ins"]
    assert [script.attributes["src"] for script in page.all("script")] == ["/console/static/live.js"]
    assert page.all("img") == page.all("b", **{"class": "who"}) == []
    assert "laptop <b>" in page.one(class_="who").text


async def test_before_anybody_came_back_that_is_said(run_console, settings_of, page_of, monkeypatch) -> None:
    page = await shown(run_console, settings_of, page_of, monkeypatch=monkeypatch)

    assert "No request has continued a conversation" in page.one(class_="empty").text
