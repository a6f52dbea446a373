"""A conversation that is looked at while things change, in a real browser: `make console-check`.

Its words are not shown, it has branches, the window is resized, it goes on, it is forgotten.
"""

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Page, Response, expect

from gateway.config.gateway_config import ServeConfig
from gateway.context.compose.recall import Comparison
from gateway.context.memory import Miss, RequestFigures
from leaf_sdk.testing import tiny_map_bytes
from leaf_sdk.vocab import load_map

CONVERSATION = "/console/conversations/7"
SAID = {
    "user": "zebra asks", "tool": "zebra__tool", "arguments": '{"zebra": "zebra"}', "result": "zebra gives",
    "model": "zebra says", "was": "zebra was",
}  # fmt: skip
EDGE = """
box => {
  const top = box.getBoundingClientRect().top;
  const chips = [...box.querySelectorAll(".id-chip")].filter((each) => each.getBoundingClientRect().bottom > top + 1);
  chips.sort((one, other) => Number(one.dataset.n) - Number(other.dataset.n));
  return Number(chips[0].dataset.n);
}
"""
BELOW = """
(box, number) => {
  const chip = box.querySelector(`[data-n="${number}"]`);
  return chip && chip.getBoundingClientRect().top - box.getBoundingClientRect().top;
}
"""


def opened(visitor: Any, path: str = CONVERSATION) -> Page:
    visitor.sign_in()
    page = visitor.open(path)
    expect(page.locator(".id-chip").first).to_be_visible()
    return page


def settled(page: Page) -> None:
    """Two frames have been drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_no_word_of_a_conversation_leaves_while_texts_are_off(window, run_console, answered) -> None:
    told: list[str] = []

    def read(response: Response) -> None:
        if response.request.resource_type in ("document", "fetch", "xhr") and response.status == 200:
            told.append(response.text())

    with run_console("off") as console, window(console) as visitor:
        console.remember(answered("last", before=answered("first", **SAID), made=2.0, **SAID))
        miss = Miss("client_changed", 9, 3, 41, "zebra was", "zebra now")
        figures = RequestFigures(9, 4, 9, 4, 5, "client_changed", miss)
        compared = Comparison(datetime.now(UTC), "alice", 7, "last", figures)
        console.services.agent.recall._last.append(compared)
        visitor.page.on("requestfinished", lambda request: read(request.response()))
        page = opened(visitor)
        expect(page.get_by_role("button", name="Compare with the text path")).to_have_count(0)
        page.locator(".to-id").last.click()
        expect(page.locator(".id-details")).to_contain_text("text of conversations is switched off")
        page.keyboard.press("n")
        visitor.judge()
        visitor.picture("texts-off-wide")
        seen = [page.content(), *(visitor.open(path).content() for path in ("/console/conversations", "/console/why"))]

    assert len(told) >= 5
    assert [each for each in told if '"ids":[' in each or '"logprobs"' in each] == []
    words = ("zebra", base64.b64encode(b"zebra").decode().rstrip("="), b"zebra".hex(" "), '"bytes"', '"sizes"')
    assert [(word, each[:200]) for each in (*told, *seen) for word in words if word in each] == []


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_switch_shows_text_to_the_one_who_uses_it(window, run_console, answered, tmp_path, size: str) -> None:
    keys = tmp_path / "keys.toml"
    keys.touch(0o600)
    with (
        run_console("auto", serve=ServeConfig(keys=keys)) as console,
        window(console, size) as visitor,
        window(console) as other,
    ):
        console.remember(answered("one", **SAID))
        other.sign_in()
        page = opened(visitor)
        expect(page.locator(".id-chip").first).to_have_text("·")
        visitor.judge()
        page.get_by_role("button", name="Show text").press("Enter")
        expect(page).to_have_url(re.compile(f"{CONVERSATION}$"))
        expect(page.locator(".id-chip").first).not_to_have_text("·")
        page.get_by_text("Arguments and result").click()
        expect(page.locator(".calls pre").last).to_have_text("zebra gives")
        visitor.judge()
        visitor.picture(f"texts-switched-{size}")
        theirs = other.open(CONVERSATION)
        expect(theirs.locator(".id-chip").first).to_have_text("·")
        page.get_by_role("button", name="Hide text").click()
        expect(page.locator(".id-chip").first).to_have_text("·")


def places(page: Page) -> list[int]:
    """Where the ids begin that would come back different."""
    found: list[int] = []
    start: int | None = 0
    while start is not None:
        asked = f"fetch('{CONVERSATION}/differences.json?from={start}').then((answer) => answer.json())"
        told = page.evaluate(asked)
        found += [each["at"] for each in told["differences"]]
        start = told["next"]
    return found


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_places_that_differ_are_reached_one_after_the_other(window, run_console, answered, size: str) -> None:
    long = " ".join(f"word{n}" for n in range(3000))
    with run_console("on") as console, window(console, size) as visitor:
        node = answered("first", letters="hello world", result=long)
        for number in range(3):
            node = answered(f"a{number}", before=node, made=2.0 + number, letters="hello and world", result=long)
        console.remember(node)
        page = opened(visitor)
        after, before = (
            page.get_by_role("button", name=f"{words} place that differs") for words in ("Next", "Previous")
        )
        expect(after).to_be_hidden()
        page.keyboard.press("n")
        page.get_by_role("button", name="Compare with the text path").click()
        expect(page.locator(".viewer-status")).to_contain_text("would get other ids")
        found = places(page)
        assert len(found) > 3
        expect(page.locator(".jump-count")).to_have_text(f"{len(found)} places")
        focused = page.locator(".id-chip:focus")
        after.press("Enter")
        expect(focused).to_have_attribute("data-n", str(found[0]))
        for number, place in enumerate(found[1:], 2):
            page.keyboard.press("n")
            expect(focused).to_have_attribute("data-n", str(place))
            expect(focused).to_have_class(re.compile("differs"))
            expect(focused).to_have_attribute("aria-label", re.compile("different in the text path"))
            expect(page.locator(".jump-count")).to_have_text(f"{number} of {len(found)}")
            expect(page.get_by_role("status").filter(has_text=f"Place {number} of {len(found)}")).to_be_visible()
            expect(focused).to_be_in_viewport()
        expect(page.locator(".id-details")).to_contain_text("text path")
        visitor.judge()
        visitor.picture(f"jump-{size}")
        page.keyboard.press("n")
        expect(focused).to_have_attribute("data-n", str(found[0]))
        before.click()
        expect(focused).to_have_attribute("data-n", str(found[-1]))
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("p")
        expect(focused).to_have_attribute("data-n", str(found[-2]))


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_tool_definitions_are_folded_until_somebody_opens_them(window, run_console, answered, size: str) -> None:
    tools = " ".join(f'{{"name": "tool{n}"}}' for n in range(2000))
    with run_console("on") as console, window(console, size) as visitor:
        node = answered("one", tools=tools)
        console.remember(node)
        page = opened(visitor)
        defined = node.record.spans[0].count
        fold = page.locator(".fold")
        expect(fold).to_have_attribute("aria-expanded", "false")
        # The first chip is the first of what the user asked.
        expect(page.locator(".id-chip").first).to_have_attribute("data-n", str(defined))
        visitor.judge()
        visitor.picture(f"folded-{size}")
        page.locator(".id-chip").first.click()
        for key in ("ArrowLeft", "ArrowUp", "Home", "Control+Home", "PageUp"):
            page.keyboard.press(key)
            expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", str(defined))
        page.keyboard.press("Shift+Tab")
        expect(fold).to_be_focused()
        page.keyboard.press("Enter")
        expect(fold).to_have_attribute("aria-expanded", "true")
        expect(fold).to_be_focused()
        expect(page.locator(".id-chip").first).to_have_attribute("data-n", "0")
        visitor.judge()
        page.locator(".id-chip").first.click()
        page.keyboard.press("PageDown")
        expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", re.compile(r"^\d{2,}$"))
        page.keyboard.press("Control+Home")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Space")
        expect(fold).to_have_attribute("aria-expanded", "false")
        expect(page.locator(".id-chip").first).to_have_attribute("data-n", str(defined))
        assert page.locator(".id-chip[tabindex='0']").count() == 1
        # What goes on leaves the fold as it is.
        console.remember(answered("two", before=node, made=2.0))
        expect(page.locator("#news")).to_contain_text("has continued", timeout=15_000)
        expect(fold).to_have_attribute("aria-expanded", "false")
        page.locator(".to-id").last.click()
        expect(page.locator(".id-chip:focus")).to_be_visible()


def test_each_branch_shows_its_own_ids(window, run_console, answered) -> None:
    with run_console("on") as console, window(console, "narrow") as visitor:
        first = answered("first", user="first")
        older = answered("older", before=first, made=2.0, user="the older question")
        newer = answered("newer", before=first, made=3.0, user="the newer and longer question")
        console.remember(older, newer)
        page = opened(visitor)
        branches = page.get_by_role("navigation", name="Branches").get_by_role("link")
        expect(branches).to_have_count(2)
        expect(branches.first).to_have_attribute("aria-current", "true")
        expect(page.get_by_role("grid")).to_have_attribute("aria-label", f"{len(newer.ids())} tokens in reading order")
        visitor.judge()
        branches.nth(1).click()
        expect(page.get_by_role("grid")).to_have_attribute("aria-label", f"{len(older.ids())} tokens in reading order")
        expect(branches.nth(1)).to_have_attribute("aria-current", "true")
        page.locator(".id-chip").first.click()
        page.keyboard.press("Control+End")
        expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", str(len(older.ids()) - 1))
        visitor.judge()


def test_window_that_is_resized_keeps_the_place_and_the_focus(window, run_console, answered) -> None:
    long = " ".join(f"word{n}" for n in range(20_000))
    with run_console("on") as console, window(console) as visitor:
        console.remember(answered("one", result=long))
        page = opened(visitor)
        box = page.locator(".ids")
        box.evaluate("each => { each.scrollTop = each.scrollHeight / 2; }")
        expect(page.locator(".id-wait")).to_have_count(0)
        settled(page)
        number = box.evaluate(EDGE) + 100
        page.locator(f'.id-chip[data-n="{number}"]').click()
        settled(page)
        edge = box.evaluate(EDGE)
        below = box.evaluate(BELOW, edge)
        for width in (900, 610, 320, 480, 333, 1000, 777, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            settled(page)
            expect(page.locator(".id-wait")).to_have_count(0)
            assert abs(box.evaluate(BELOW, edge) - below) <= 1, width
            right = "all => Math.max(...all.map((each) => each.getBoundingClientRect().right))"
            room = box.evaluate("each => each.getBoundingClientRect().right")
            # As many chips a row as there is room for.
            assert room - 130 < page.locator(".id-chip").evaluate_all(right) <= room
            assert page.evaluate("document.querySelectorAll('*').length") < 3000
            expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", str(number))


def test_conversation_that_goes_on_is_followed_without_losing_the_place(window, run_console, answered) -> None:
    long = " ".join(f"word{n}" for n in range(5000))
    with run_console("on") as console, window(console) as visitor:
        first = answered("first", result=long)
        console.remember(first)
        page = opened(visitor)
        box = page.locator(".ids")
        box.evaluate("each => { each.scrollTop = 3000; }")
        settled(page)
        expect(page.locator(".id-wait")).to_have_count(0)
        number = box.evaluate(EDGE) + 40
        page.locator(f'.id-chip[data-n="{number}"]').click()
        page.evaluate("document.querySelector('#request-1 details').open = true")
        page.evaluate("window.chip = document.activeElement")
        before = box.evaluate(BELOW, number), page.evaluate("scrollY")

        second = answered("second", before=first, made=2.0, user="and now?")
        console.remember(second, answered("stranger", number=9, made=3.0))
        expect(page.locator("#news")).to_contain_text("The conversation has continued. Turns 3 to 4", timeout=15_000)

        expect(page.locator(".turn")).to_have_count(4)
        expect(page.get_by_role("grid")).to_have_attribute(
            "aria-label", f"{len(second.ids()):,} tokens in reading order"
        )
        assert (box.evaluate(BELOW, number), page.evaluate("scrollY")) == before
        assert page.evaluate("document.activeElement === window.chip")
        assert page.locator("#request-1 details").evaluate("each => each.open")
        visitor.judge()
        visitor.picture("followed-wide")
        page.keyboard.press("Control+End")
        expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", str(len(second.ids()) - 1))
        page.get_by_role("link", name="Turns 3 to 4").click()
        assert page.url.endswith("#turn-3")
        expect(page.locator("#turn-3")).to_be_in_viewport()


def test_other_branch_is_told_and_not_followed(window, run_console, answered) -> None:
    with run_console("on") as console, window(console) as visitor:
        first = answered("first", user="first")
        mine = answered("mine", before=first, made=2.0, user="mine")
        console.remember(mine)
        page = opened(visitor)
        console.remember(answered("theirs", before=first, made=3.0, user="theirs and longer"))
        expect(page.get_by_role("navigation", name="Branches").get_by_role("link")).to_have_count(2, timeout=15_000)
        expect(page.get_by_role("grid")).to_have_attribute("aria-label", f"{len(mine.ids())} tokens in reading order")
        expect(page.locator("#news")).to_be_empty()


def test_answer_that_kept_less_of_the_one_before_is_shown_as_it_is(window, run_console, answered) -> None:
    with run_console("on") as console, window(console) as visitor:
        first = answered("first", user="first", model="these words are cut")
        console.remember(first)
        page = opened(visitor)
        second = answered("second", before=first, made=2.0, user="XYZ")
        kept = len(first.ids()) - 5
        object.__setattr__(second, "kept", kept)
        object.__setattr__(second.record, "kept", kept)
        console.remember(second)
        expect(page.locator("#news")).to_contain_text("has continued", timeout=15_000)
        page.locator(".id-chip").first.click()
        page.keyboard.press("Control+End")
        expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", str(len(second.ids()) - 1))
        shown = page.locator(".id-chip").evaluate_all("all => all.map((each) => each.ariaLabel.match(/id (\\d+)/)[1])")
        assert [int(each) for each in shown] == second.ids()


@pytest.mark.parametrize("whole", [True, False])
def test_conversation_that_is_forgotten_is_said_to_be(window, run_console, answered, whole: bool) -> None:
    with run_console("on", most=40_000) as console, window(console) as visitor:
        first = answered("first")
        console.remember(first if whole else answered("second", before=first, made=2.0))
        page = opened(visitor)
        others = 0
        while any(each.answer_id != "first" or whole for each in console.memory.branches(7)):
            others += 1
            console.remember(answered(f"other{others}", number=100 + others))
        told = "Conversation 7 is no longer" if whole else "An answer of conversation 7 is no longer"
        expect(page.locator("#news")).to_contain_text(told, timeout=15_000)
        expect(page.locator(".turn").first).to_be_visible()
        visitor.judge()
        page.get_by_role("link", name="Load the page again").click()
        expect(page).to_have_url(re.compile(r"\?gone=7$"))
        expect(page.locator(".note")).to_contain_text("is no longer remembered")


def test_comparison_with_the_text_path_keeps_the_focus(window, run_console, answered) -> None:
    with run_console("on") as console, window(console) as visitor:
        console.remember(answered("one"))
        page = opened(visitor)
        compare = page.get_by_role("button", name="Compare with the text path")
        compare.press("Enter")
        expect(page.locator(".viewer-status")).to_contain_text("Every token would keep its id.")
        expect(compare).to_be_focused()


def test_comparison_of_two_maps_keeps_the_focus_and_what_is_typed(window, run_console) -> None:
    other = load_map(json.dumps(json.loads(tiny_map_bytes()) | {"merges": []}).encode())
    with run_console("on") as console, window(console, "narrow") as visitor:
        console.services.engines.maps.add(other)
        visitor.sign_in()
        page = visitor.open("/console/tokenizer")
        text, cut = page.get_by_label("Text"), page.get_by_role("button", name="Cut")
        text.fill("hello")
        page.get_by_label("Compared with").select_option(other.map_id)
        cut.press("Enter")
        expect(page.locator(".side")).to_have_count(2)
        expect(cut).to_be_focused()
        expect(page.locator(".side").first).to_be_in_viewport()
        expect(page.get_by_role("status").filter(has_text="The tokens are shown below.")).to_be_visible()
        visitor.judge()

        before = page.locator(".chips").first.text_content() or ""
        text.fill("hello world")
        cut.press("Enter")
        expect(page.locator(".chips").first).not_to_have_text(before)
        expect(cut).to_be_focused()
        expect(text).to_have_value("hello world")
        visitor.judge()


def test_open_page_says_that_the_engine_went_down(window, run_console, answered, monkeypatch) -> None:
    def tell(state: str) -> None:
        engine = {"state": state, "reason": "killed by signal 9", "model": "smol"}
        monkeypatch.setattr(console.services.parts.status, "engine", lambda: engine)

    with run_console("on") as console, window(console) as visitor:
        console.remember(answered("one"))
        tell("ready")
        page = opened(visitor)
        expect(page.get_by_text("Engine ready: smol")).to_be_visible()
        tell("down")
        expect(page.locator("#engine")).to_have_text("Engine down: killed by signal 9", timeout=15_000)
        expect(page.get_by_text("Engine ready: smol")).to_have_count(0)
        visitor.judge()
        tell("ready")
        expect(page.get_by_text("Engine ready: smol")).to_be_visible(timeout=15_000)
        expect(page.locator("#engine")).to_have_text("")


def test_page_in_a_hidden_tab_asks_for_nothing_until_it_is_in_sight(window, run_console, answered) -> None:
    asked: list[str] = []
    with run_console("on") as console, window(console) as visitor:
        console.remember(answered("one"))
        visitor.sign_in()
        visitor.page.clock.install()
        page = visitor.open("/console/conversations")
        page.on("request", lambda request: asked.append(request.url))
        hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); "
        hide += "document.dispatchEvent(new Event('visibilitychange')); }"
        page.evaluate(hide, True)
        page.clock.run_for(60_000)
        hidden = list(asked)
        with page.expect_request("**/console/conversations"):
            page.evaluate(hide, False)

        assert hidden == []


def test_page_says_that_somebody_is_signed_out(window, run_console, answered) -> None:
    with run_console("on") as console, window(console) as visitor:
        console.remember(answered("one"))
        page = opened(visitor)
        page.context.clear_cookies()
        expect(page.locator("#news")).to_contain_text("You are signed out.", timeout=15_000)
