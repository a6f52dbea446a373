"""The console in a real browser, over a real gateway with the packaged model and real servers: `make console-check`.

Each page that is opened tells of what it must not do: ask another host, break the page's policy, run what it was shown.
Pictures of what was seen are written to `.tools/console/pictures`.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route, expect, sync_playwright

TOOLS = Path(__file__).parents[3] / ".tools" / "console"
PICTURES = TOOLS / "pictures"
TOKEN = "an-operator-s-token-of-enough-length-0123"
SIZES = {"wide": (1280, 900), "narrow": (320, 640)}
CALLS = ["time_leaf__get_current_time", "plain_time__get_time", "rude__say"]


class Visitor:
    """A browser's window that is signed in, and what went wrong in it."""

    def __init__(self, page: Page, admin: str) -> None:
        self.page = page
        self.admin = admin
        self.wrong: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((f"{self.admin}/", "data:")):
            self.wrong.append(f"asked {request.url}")

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.admin}{path}")
        return self.page

    def sign_in(self) -> None:
        page = self.open("/console/sign-in")
        page.locator("input[name=key]").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("navigation", name="Console")).to_be_visible()

    def judge(self) -> None:
        """No rule of accessibility is broken, and nothing reaches over the page's side."""
        self.page.evaluate((TOOLS / "node" / "node_modules" / "axe-core" / "axe.min.js").read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((told) => told.violations)")
        assert [f"{each['id']}: {[node['html'] for node in each['nodes']][:3]}" for each in found] == []
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, run_gateway, time_leaf, plain_time, server) -> Iterator[Any]:
    servers = {"time_leaf": time_leaf, "plain_time": plain_time, "rude": server("rude")}
    env = {"CODEC_ADMIN_TOKEN": TOKEN, "CODEC_GATEWAY_CONSOLE__TEXTS": "on", "CODEC_GATEWAY_TRAJECTORIES__LOGPROBS": "true"}
    folder = tmp_path_factory.mktemp("console")
    env["CODEC_GATEWAY_TRAJECTORIES__PATH"] = str(folder / "trajectories")
    with run_gateway(folder, servers, "--engine", "embedded", env=env) as running:
        yield running


@contextmanager
def window(browser: Browser, gateway: Any, size: str = "wide", scheme: Any = "light", **options: Any) -> Iterator[Visitor]:
    width, height = SIZES[size]
    context: BrowserContext = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, **options
    )
    with context:
        visitor = Visitor(context.new_page(), gateway.admin)
        yield visitor
        assert visitor.wrong == []


def talk(gateway: Any, *questions: str, tools: Any = CALLS, system: str = "You are kind.") -> list[dict[str, Any]]:
    """A conversation of which each request calls one of the gateway's tools."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    for number, question in enumerate(questions):
        messages.append({"role": "user", "content": question})
        named = tools[number % len(tools)]
        choice = "none" if named is None else {"type": "function", "function": {"name": named}}
        body = {"model": "any", "messages": messages, "tool_choice": choice, "max_tokens": 60, "seed": 1}
        answer = httpx2.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        told = answer.json()["choices"][0]["message"]
        messages.append({key: value for key, value in told.items() if value is not None})
    return messages


@pytest.fixture(scope="module")
def talks(browser: Browser, gateway: Any) -> None:
    """Conversations that were held while somebody was signed in."""
    with window(browser, gateway) as visitor:
        visitor.sign_in()
    talk(gateway, "What time is it?", "And once more?", "What does it say?", "Thank you.", tools=[*CALLS, None])
    talk(gateway, "And louder?", tools=["rude__shout"])
    told = talk(gateway, "What time is it in Bern?", tools=["time_leaf__get_current_time"])
    told[0]["content"] = "You are unkind."
    body = {"model": "any", "messages": [*told, {"role": "user", "content": "Why?"}], "tool_choice": "none", "max_tokens": 20}
    assert httpx2.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=120).status_code == 200


def picture(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_load_break_no_rule_and_fit(browser, gateway, talks, size: str, scheme: str) -> None:
    with window(browser, gateway, size, scheme) as visitor:
        visitor.sign_in()
        page = visitor.open("/console/conversations")
        expect(page.locator(".talk")).to_have_count(4)
        visitor.judge()
        picture(page, f"conversations-{size}-{scheme}")

        page.locator(".talk a").last.click()
        expect(page.locator(".chip").first).to_be_visible()
        visitor.judge()
        picture(page, f"conversation-{size}-{scheme}")
        page.locator(".turn").last.scroll_into_view_if_needed()
        page.locator("details").first.evaluate("each => each.open = true")
        visitor.judge()
        picture(page, f"turns-{size}-{scheme}")
