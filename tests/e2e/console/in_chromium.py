"""The console in a real browser, over a real gateway with the packaged model and real servers: `make console-check`.

Each page that is opened tells of what it must not do: ask another host, break the page's policy, run what it was shown.
Pictures of what was seen are written to `.tools/console/pictures`.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Locator, Page, Route, expect


@pytest.fixture(scope="module")
def gateway(token, tmp_path_factory, run_gateway, time_leaf, plain_time, server) -> Iterator[Any]:
    servers = {"time_leaf": time_leaf, "plain_time": plain_time, "rude": server("rude")}
    env = {
        "CODEC_ADMIN_TOKEN": token,
        "CODEC_GATEWAY_CONSOLE__TEXTS": "on",
        "CODEC_GATEWAY_TRAJECTORIES__LOGPROBS": "true",
    }
    folder = tmp_path_factory.mktemp("console")
    env["CODEC_GATEWAY_TRAJECTORIES__PATH"] = str(folder / "trajectories")
    with run_gateway(folder, servers, "--engine", "embedded", env=env) as running:
        yield running


def ask(gateway: Any, messages: list[dict[str, Any]], tool: str | None, most: int = 60) -> dict[str, Any]:
    choice = "none" if tool is None else {"type": "function", "function": {"name": tool}}
    body = {"model": "any", "messages": messages, "tool_choice": choice, "max_tokens": most, "temperature": 0}
    answer = httpx2.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=240)
    assert answer.status_code == 200, answer.text
    return {key: value for key, value in answer.json()["choices"][0]["message"].items() if value is not None}


def talk(gateway: Any, *questions: tuple[str, str | None], system: str = "You are kind.") -> list[dict[str, Any]]:
    """A conversation of which each request may call one of the gateway's tools."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    for question, tool in questions:
        messages.append({"role": "user", "content": question})
        messages.append(ask(gateway, messages, tool))
    return messages


@pytest.fixture(scope="module")
def talks(window, gateway: Any) -> None:
    """Conversations that were held while somebody was signed in."""
    with window(gateway) as visitor:
        visitor.sign_in()
    time = ("What time is it in Europe/Paris? Use the timezone Europe/Paris.", "time_leaf__get_current_time")
    town = ("And in the city of Paris?", "plain_time__get_time")
    talk(gateway, time, town, ("What does it say?", "rude__say"), ("Thank you.", None))
    talk(gateway, ("And louder?", "rude__shout"))
    told = talk(gateway, time)
    told[0]["content"] = "You are unkind."
    ask(gateway, [*told, {"role": "user", "content": "Why?"}], None)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_pages_load_break_no_rule_and_fit(window, gateway, talks, size: str, scheme: str) -> None:
    with window(gateway, size, scheme) as visitor:
        visitor.sign_in()
        page = visitor.open("/console/conversations")
        expect(page.locator(".talk")).to_have_count(4)
        visitor.judge()
        visitor.picture(f"conversations-{size}-{scheme}")

        page.locator(".talk a").last.click()
        expect(page.locator(".id-chip").first).to_be_visible()
        visitor.judge()
        visitor.picture(f"conversation-{size}-{scheme}")
        page.locator(".to-id", has_text="result").nth(1).click()
        expect(page.locator(".id-chip:focus")).to_be_visible()
        page.locator(".ids").evaluate("each => { each.scrollTop += 300; }")
        page.locator(".viewer").scroll_into_view_if_needed()
        visitor.picture(f"ids-{size}-{scheme}")
        page.locator("#turns-title").evaluate("each => each.scrollIntoView()")
        page.locator("details").first.evaluate("each => each.open = true")
        visitor.judge()
        visitor.picture(f"turns-{size}-{scheme}")


PAGES = {
    "sign-in": "/console/sign-in",
    "why": "/console/why",
    "servers": "/console/servers",
    "server": "/console/server?name=rude",
    "tool": "/console/tool?name=rude__say",
    "pins": "/console/pins",
    "tokenizer": "/console/tokenizer",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_other_pages_load_break_no_rule_and_fit(window, gateway, talks, size: str, scheme: str) -> None:
    with window(gateway, size, scheme) as visitor:
        visitor.sign_in()
        for name, path in PAGES.items():
            page = visitor.open(path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            visitor.judge()
            assert page.locator("main img, main script").count() == 0
            visitor.picture(f"{name}-{size}-{scheme}")
        page = visitor.open("/console/tokenizer")
        page.get_by_label("Text").fill("<|im_start|>user\nWhat is it? \u202e<img src=x> 漢字 🙂<|im_end|>")
        page.locator("main form button[type=submit]").first.click()
        expect(page.locator(".chips").first).to_be_visible()
        visitor.judge()
        visitor.picture(f"cut-{size}-{scheme}")


def test_tool_is_called_by_hand(window, gateway, talks) -> None:
    with window(gateway) as visitor:
        visitor.sign_in()
        page = visitor.open("/console/tool?name=plain_time__get_time")
        page.get_by_label("city").fill("Paris")
        page.get_by_role("button", name="Call").click()
        expect(page.locator("#result")).to_contain_text("The time in Paris is")
        visitor.judge()
        visitor.picture("call-wide")
        page = visitor.open("/console/tool?name=rude__say")
        page.get_by_role("button", name="Call").click()
        expect(page.locator("#result")).to_contain_text("<img src=x")
        visitor.judge()


def test_list_follows_conversations_as_they_come(window, gateway, talks) -> None:
    with window(gateway) as visitor:
        visitor.sign_in()
        page = visitor.open("/console/conversations")
        total = page.locator(".total").text_content()
        talk(gateway, ("Hello?", None), system="You are new.")
        expect(page.locator(".talk-name").first).to_have_text("Hello?", timeout=15_000)
        expect(page.locator(".talk-cached").first).to_contain_text("prompt tokens cached")
        expect(page.locator(".talk-facts").first).to_contain_text("tokens/s")
        expect(page.locator(".total")).not_to_have_text(total or "")


def test_filters_leave_what_is_asked_for(window, gateway, talks) -> None:
    with window(gateway) as visitor:
        visitor.sign_in()
        page = visitor.open("/console/conversations")
        page.get_by_label("Recomputed").select_option("any")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".talk")).to_have_count(1)
        expect(page.locator(".talk-why")).to_contain_text("the client changed an earlier message")
        expect(page.get_by_label("Recomputed")).to_have_value("any")
        visitor.judge()


def test_without_a_cookie_there_is_the_form_alone(window, gateway, talks) -> None:
    with window(gateway) as visitor:
        page = visitor.open("/console/conversations/0")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        assert page.url.endswith("/console/sign-in")
    for path in ("transcript.json", "ids.json", "differences.json"):
        answer = httpx2.get(f"{gateway.admin}/console/conversations/0/{path}", headers={"cookie": "codec-console=x"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/sign-in")


def details(page: Page) -> dict[str, str]:
    pairs = page.locator(".id-details > div").all()
    return {each.locator("dt").text_content() or "": each.locator("dd").text_content() or "" for each in pairs}


def focused(page: Page) -> int:
    return int(page.evaluate("document.activeElement.dataset.n ?? -1"))


def test_keyboard_alone_reaches_every_id(window, gateway, talks) -> None:
    with window(gateway) as visitor:
        visitor.sign_in()
        page = visitor.open("/console/conversations")
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Thank you.":
                break
        page.keyboard.press("Enter")
        expect(page.locator(".id-chip").first).to_be_visible()
        for _ in range(30):
            page.keyboard.press("Tab")
            if focused(page) == 0:
                break
        assert focused(page) == 0
        moves = [("ArrowRight", 1), ("End", 2), ("ArrowRight", 3), ("Home", 3), ("ArrowLeft", 2), ("ArrowUp", 0)]
        for key, place in moves:
            page.keyboard.press(key)
            assert (key, focused(page)) == (key, place)
        page.keyboard.press("PageDown")
        expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", re.compile(r"\d{3,}"))
        page.keyboard.press("ArrowDown")
        here = focused(page)
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowDown")
        assert focused(page) == here
        page.keyboard.press("Control+End")
        asked = "fetch(`${document.querySelector('#viewer').dataset.address}/transcript.json`)"
        count = page.evaluate(f"{asked}.then((answer) => answer.json()).then((told) => told.count)")
        expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", str(count - 1))
        assert details(page)["place"].replace(",", "") == str(count - 1)
        assert page.evaluate("document.querySelectorAll('.id-chip[tabindex=\"0\"]').length") == 1
        page.keyboard.press("Control+Home")
        expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", "0")
        assert details(page)["text"] == "<|im_start|>"
        assert details(page)["kind"] == "special token"


def test_words_of_others_are_text_and_break_nothing(window, gateway, talks) -> None:
    for number in (0, 1):
        for size in ("wide", "narrow"):
            with window(gateway, size) as visitor:
                visitor.sign_in()
                page = visitor.open(f"/console/conversations/{number}")
                expect(page.locator(".id-chip").first).to_be_visible()
                page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
                page.locator(".to-id", has_text="result").last.click()
                expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", re.compile(r"\d{3,}"))
                visitor.judge()
                assert page.title().startswith("Conversation")
                assert page.locator("main img, main script, main [style*=url]").count() == 0
                assert "\u202e" not in page.inner_text("main")
                visitor.picture(f"hostile-{number}-{size}")


def test_text_path_is_compared_when_it_is_asked_for(window, gateway, talks) -> None:
    with window(gateway) as visitor:
        visitor.sign_in()
        page = visitor.open("/console/conversations/0")
        page.get_by_role("button", name="Compare with the text path").click()
        expect(page.locator(".viewer-status")).to_contain_text("would get other ids", timeout=30_000)
        visitor.judge()


def test_without_scripts_the_turns_are_there(token, window, gateway, talks) -> None:
    with window(gateway, java_script_enabled=False) as visitor:
        page = visitor.open("/console/sign-in")
        page.locator("input[name=key]").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page = visitor.open("/console/conversations/0")
        expect(page.locator(".turn")).to_have_count(7)
        expect(page.locator("noscript")).to_be_visible()


def test_answer_of_the_model_arrives_in_the_open_conversation(window, gateway, talks) -> None:
    with window(gateway) as visitor:
        visitor.sign_in()
        told = talk(gateway, ("What is a lighthouse?", None), system="You are kind. " * 200)
        page = visitor.open("/console/conversations")
        page.locator(".talk a").first.click()
        box, grid = page.locator(".ids"), page.get_by_role("grid")
        expect(page.locator(".id-chip").first).to_be_visible()
        before = ids_in(grid)
        box.evaluate("each => { each.scrollTop = 300; }")
        expect(page.locator(".id-wait")).to_have_count(0)
        page.locator(".id-chip").nth(200).click()
        here = focused(page)
        page.evaluate("window.chip = document.activeElement")
        places = box.evaluate("each => [each.scrollTop, scrollY]")

        told.append({"role": "user", "content": "What time is it in Europe/Paris? Use the timezone Europe/Paris."})
        ask(gateway, told, "time_leaf__get_current_time")

        expect(page.locator("#news")).to_contain_text("The conversation has continued.", timeout=15_000)
        assert page.evaluate("document.activeElement === window.chip")
        assert (focused(page), box.evaluate("each => [each.scrollTop, scrollY]")) == (here, places)
        assert ids_in(grid) > before
        page.keyboard.press("Control+End")
        expect(page.locator(".id-chip:focus")).to_have_attribute("data-n", str(ids_in(grid) - 1))
        expect(page.locator(".run-head", has_text="leaf").last).to_contain_text("time_leaf")
        expect(page.locator(".turn")).to_have_count(3)
        visitor.judge()


def ids_in(grid: Locator) -> int:
    return int((grid.get_attribute("aria-label") or "").split()[0].replace(",", ""))


def test_first_paint_is_quick_and_small(window, gateway, talks) -> None:
    with window(gateway) as visitor:
        visitor.sign_in()
        told: dict[str, Any] = {}
        for name, path in (("list", "/console/conversations"), ("one", "/console/conversations/0")):
            paints = []
            for _ in range(5):
                page = visitor.open(path)
                page.wait_for_load_state("networkidle")
                paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
                kilobytes = page.evaluate(
                    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
                    ".reduce((sum, each) => sum + each.encodedBodySize, 0) / 1024"
                )
            told[name] = {"first paint, ms": round(sorted(paints)[2]), "KiB": round(kilobytes, 1)}
        visitor.note("first paint", told)
        assert all(each["first paint, ms"] < 200 and each["KiB"] < 150 for each in told.values()), told


LONG = 200_000
LONG_TASK = 50
"""Milliseconds from which on people notice that a page does not react (https://w3c.github.io/longtasks/)."""
RUN = 37
WORDS = ["·the", " of", "\n", " token", "ization", "é", "漢字", " {", '"name"', "\u202e", "🙂"]


def long_seen() -> dict[str, Any]:
    sources = ["template", "user", "template", "model", "reasoning", "leaf", "shim"]
    runs = [[at, min(RUN, LONG - at), sources[at // RUN % 7], None, None, None] for at in range(0, LONG, RUN)]
    ends = [[n, at, at + (n % 3), at + 40] for n, at in enumerate(range(0, LONG - 100, 997))]
    turns = [{"answer": 0, "start": None, "count": 1, "calls": [], "guessed": False}] * len(ends)
    told = {"number": 0, "answer": "x", "count": LONG, "texts": True, "ids": True, "calls": [], "turns": turns}
    return {**told, "runs": runs, "cache_ends": ends}


def long_ids(start: int, count: int) -> dict[str, Any]:
    numbers = range(start, min(start + count, LONG))
    pieces = [WORDS[n % len(WORDS)].encode() for n in numbers]
    return {
        "from": start, "count": len(numbers), "ids": [n % 49_152 for n in numbers],
        "logprobs": [-(n % 5) / 2 for n in numbers],
        "special": list(range(0, len(numbers), 50)), "sizes": [len(piece) for piece in pieces],
        "bytes": base64.b64encode(b"".join(pieces)).decode(),
    }  # fmt: skip


def longest_task(trace: bytes) -> float:
    """CPU milliseconds of the longest task of the page. Not its duration: the machine may have other things to do."""
    events = json.loads(trace)["traceEvents"]
    names = ((each, each["args"]["name"]) for each in events if each["name"] == "thread_name")
    pages = {(each["pid"], each["tid"]) for each, name in names if name == "CrRendererMain"}
    tasks = (each for each in events if each["name"] == "RunTask" and (each["pid"], each["tid"]) in pages)
    # The trace does not give the CPU time of a task that was running when it began.
    return max(each["tdur"] for each in tasks if "tdur" in each) / 1000


def scrolled(page: Page) -> tuple[int, float]:
    """Nodes, and CPU milliseconds of the longest task, while all is scrolled through in all ways."""
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=["disabled-by-default-devtools.timeline"])
    box = page.locator(".ids")
    box.hover()
    for _ in range(100):
        page.mouse.wheel(0, 900)
        page.wait_for_timeout(16)
    for part in (0.2, 0.9, 0.5, 1, 0):
        box.evaluate(f"each => {{ each.scrollTop = each.scrollHeight * {part}; }}")
        expect(page.locator(".id-wait")).to_have_count(0)
        page.wait_for_timeout(50)
    page.locator(".id-chip").first.click()
    for key in ("PageDown", "PageDown", "ArrowDown", "Control+End", "PageUp", "Control+Home"):
        page.keyboard.press(key)
        page.wait_for_timeout(100)
    return page.evaluate("document.querySelectorAll('*').length"), longest_task(browser.stop_tracing())


def test_200_000_ids_scroll_without_a_long_task(window, gateway, talks) -> None:
    def answer(route: Route) -> None:
        if "transcript.json" in route.request.url:
            route.fulfill(json=long_seen())
            return
        start, count = (int(found) for found in re.findall(r"(?:from|count)=(\d+)", route.request.url))
        route.fulfill(json=long_ids(start, count))

    with window(gateway) as visitor:
        visitor.sign_in()
        page = visitor.page
        page.route("**/*.json?*", answer)
        visitor.open("/console/conversations/0")
        expect(page.locator(".id-chip").first).to_be_visible()
        # In the first round its scripts are compiled too.
        rounds = [scrolled(page)]
        while rounds[-1][1] >= LONG_TASK and len(rounds) < 3:
            rounds.append(scrolled(page))
        told = [{"nodes": nodes, "longest task, CPU ms": longest} for nodes, longest in rounds]
        visitor.note("200,000 ids, of each round", told)
        assert max(nodes for nodes, _ in rounds) < 3000
        assert rounds[-1][1] < LONG_TASK
