"""Words that want to be more than text, on every page of the console in a real browser: `make console-check`.

Names, descriptions, schemas and results come from a real server. What was said in conversations is put into the
gateway's memory: no model can be made to say it.
"""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from gateway.config.gateway_config import UpstreamConfig
from gateway.context.compose.recall import Comparison
from gateway.context.memory import Miss, RequestFigures

HOSTILE = Path(__file__).parents[2] / "codec_console" / "servers" / "hostile.py"
MARKUP = (
    "</textarea></title></pre><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    "<a href='javascript:alert(1)'>go</a>"
)
SIGNS = "\x1b[31mred\x1b]8;;javascript:alert(1)\x07 \u202egnp.exe\u2066\u200f\u061c \u0000 {{ 7*7 }} "
ATTACK = f"{MARKUP} javascript:alert(1) {SIGNS}"
LONG = "W" * 1_000_000
OBEYED = r"""
(() => {
  const signs = /[\u0000\u0007\u001b\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
  const found = [];
  for (const each of document.querySelectorAll(":not(textarea)")) {
    for (const { name, value } of each.attributes) if (signs.test(value)) found.push(`${each.tagName} ${name}`);
    for (const { data } of each.childNodes) if (signs.test(data ?? "")) found.push(data.slice(0, 80));
  }
  return found;
})()
"""
MARKED = "main :is(img, script, iframe, a[href^='javascript' i], [onerror], [onclick], [srcdoc], [style*='url'])"
CONVERSATION = "/console/conversations/7"


def assert_text(visitor: Any) -> None:
    """All of it is text, fits, and is read in the order in which it stands."""
    visitor.judge()
    assert visitor.page.locator(MARKED).count() == 0
    assert visitor.page.evaluate(OBEYED) == []


def hostile(**env: str) -> UpstreamConfig:
    return UpstreamConfig("hostile", command=sys.executable, args=(str(HOSTILE),), env=env, pin="warn")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory, run_console, answered) -> Iterator[Any]:
    """A console that shows such words wherever it shows any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with run_console("on", upstreams=(hostile(HONEST="1"),)):
            pass
        with run_console("on", upstreams=(hostile(),)) as console:
            said = {
                "user": ATTACK, "tool": f"up__{ATTACK}", "arguments": json.dumps({ATTACK: ATTACK, LONG: LONG}),
                "result": f"{ATTACK}{LONG}", "model": f"{ATTACK}{LONG[:5000]}", "owner": f"{ATTACK}{LONG}",
                "model_name": f"{ATTACK}{LONG}", "was": ATTACK,
            }  # fmt: skip
            first = answered("first", **said)
            console.remember(answered("last", before=first, made=2.0, **said))
            miss = Miss("client_changed", 9, 3, 41, ATTACK, LONG)
            figures = RequestFigures(1_234_567, 4, 1_234_560, 4, 1_234_556, "client_changed", miss)
            recall = console.services.agent.recall
            recall._last.append(Comparison(datetime.now(UTC), said["owner"], 7, "last", figures))
            recall._misses.note(7, "alice", b"", [{"role": "user", "content": f"{SIGNS}{ATTACK}{LONG}"}], 0)
            yield console


@pytest.fixture(scope="module")
def pages(attacked) -> dict[str, str]:
    name = next(each.name for each in attacked.services.proxy.tools() if "say" in each.name)
    return {
        "list": "/console/conversations",
        "why": "/console/why",
        "servers": "/console/servers",
        "server": "/console/server?name=hostile",
        "tool": f"/console/tool?name={quote(name, safe='')}",
        "odd tool": "/console/tool?name=hostile__odd",
        "pins": "/console/pins",
    }


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_every_page_shows_words_of_others_as_text(window, attacked, pages, size: str) -> None:
    with window(attacked, size) as visitor:
        visitor.sign_in()
        for name, path in pages.items():
            page = visitor.open(path)
            if name == "list":
                expect(page.locator(".talk-name")).to_contain_text("\\u202egnp.exe")
            assert_text(visitor)
            visitor.picture(f"attack-{name.replace(' ', '-')}-{size}")


def open_all(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_conversation_with_its_calls_shows_them_as_text(window, attacked, size: str) -> None:
    with window(attacked, size) as visitor:
        visitor.sign_in()
        page = visitor.open(CONVERSATION)
        expect(page.locator(".id-chip").first).to_be_visible()
        open_all(page)
        assert "\\u202egnp.exe\\u2066" in page.locator(".calls pre").first.text_content()
        page.locator(".to-id", has_text="result").first.click()
        expect(page.locator(".id-chip:focus")).to_be_visible()
        assert_text(visitor)
        visitor.picture(f"attack-conversation-{size}")
        for _ in range(40):
            page.keyboard.press("ArrowRight")
        expect(page.locator(".id-chip:focus")).to_be_visible()
        page.keyboard.press("Control+End")
        expect(page.locator(".id-chip:focus")).to_be_visible()
        assert_text(visitor)


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_call_by_hand_shows_its_arguments_and_its_result_as_text(window, attacked, pages, size: str) -> None:
    with window(attacked, size) as visitor:
        visitor.sign_in()
        page = visitor.open(pages["tool"])
        page.locator("textarea[name=a0]").fill(f"{MARKUP}{SIGNS.replace(chr(0), '')}")
        page.locator("input[name=a1]").fill("7")
        page.get_by_role("button", name="Call").click()
        expect(page.locator("#result pre").first).to_contain_text("<script>alert(1)</script>")
        assert_text(visitor)
        visitor.picture(f"attack-call-{size}")


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_pasted_text_is_cut_as_text(window, attacked, size: str) -> None:
    with window(attacked, size) as visitor:
        visitor.sign_in()
        page = visitor.open("/console/tokenizer")
        page.get_by_label("Text").fill(f"{MARKUP}{SIGNS.replace(chr(0), '')}{LONG[:3000]}")
        page.get_by_role("button", name="Cut").click()
        expect(page.locator(".chips").first).to_be_visible()
        assert_text(visitor)


def test_letters_that_run_from_right_to_left_stay_where_they_stand(window, run_console, answered) -> None:
    with run_console("on") as console, window(console) as visitor:
        console.remember(
            answered("one", owner="\u05d0\u05d1\u05d2 1", model_name="7 \u05d3\u05d4", tool="\u05d5\u05d6 2")
        )
        visitor.sign_in()
        page = visitor.open(CONVERSATION)
        places = """
        each => {
          const texts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
          const found = [];
          while (texts.nextNode()) {
            const range = document.createRange();
            range.selectNodeContents(texts.currentNode);
            if (texts.currentNode.data.trim()) found.push(range.getBoundingClientRect().left);
          }
          return found;
        }
        """
        for line in (page.locator(".lead"), page.locator(".call-head").first):
            found = line.evaluate(places)
            assert len(found) > 2
            assert found == sorted(found)
