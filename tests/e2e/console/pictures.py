"""The console's pictures in the documentation, of real conversations with the packaged model: `make console-pictures`.

Two tools tell the time. Three people talk to the model, one of them through a client that changes an earlier message.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect

from gateway.serve.auth.api_keys import KeyFile, KeyRecord, digest_of, new_key

DOCS = Path(__file__).parents[3] / "docs"
MARGIN = 16
LEAF, PLAIN = "time_leaf__get_current_time", "plain_time__get_time"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A key file, and the key of each caller."""
    file = KeyFile(tmp_path_factory.mktemp("keys") / "keys.toml")
    made = {name: new_key() for name in ("laptop", "editor", "night-build")}
    for name, key in made.items():
        file.add(KeyRecord(name, digest_of(key), datetime.now(UTC)))
    return file.path, made


@pytest.fixture(scope="module")
def gateway(token, tmp_path_factory, run_gateway, time_leaf, plain_time, keys) -> Iterator[Any]:
    env = {
        "CODEC_ADMIN_TOKEN": token,
        "CODEC_GATEWAY_CONSOLE__TEXTS": "on",
        "CODEC_GATEWAY_SERVE__KEYS": str(keys[0]),
    }
    servers = {"time_leaf": time_leaf, "plain_time": plain_time}
    with run_gateway(tmp_path_factory.mktemp("console"), servers, "--engine", "embedded", env=env) as running:
        yield running


class Caller:
    """One caller with its conversation, as an OpenAI client keeps it."""

    def __init__(self, gateway: Any, key: str, system: str) -> None:
        self.gateway = gateway
        self.headers = {"authorization": f"Bearer {key}"}
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}]

    def ask(self, question: str, tool: str | None = None, most: int = 48) -> None:
        """Ask; `tool`: the one that the model has to call."""
        self.messages.append({"role": "user", "content": question})
        choice = "none" if tool is None else {"type": "function", "function": {"name": tool}}
        body = {"model": "any", "messages": self.messages, "tool_choice": choice, "max_tokens": most, "temperature": 0}
        url = f"{self.gateway.url}/v1/chat/completions"
        answer = httpx2.post(url, json=body, headers=self.headers, timeout=240)
        assert answer.status_code == 200, answer.text
        message = answer.json()["choices"][0]["message"]
        self.messages.append({key: value for key, value in message.items() if value is not None})


def talk(gateway: Any, keys: dict[str, str]) -> None:
    now = datetime.now(UTC)
    build = Caller(gateway, keys["night-build"], f"You review changes. It is {now:%H:%M}.")
    build.ask("Which is the capital of France?")
    build.messages[0]["content"] = f"You review changes. It is {now + timedelta(minutes=1):%H:%M}."
    build.ask("And which of Italy?")
    editor = Caller(gateway, keys["editor"], "You are a poet.")
    editor.ask("Write two lines about a lighthouse at night.")
    laptop = Caller(gateway, keys["laptop"], "You tell the time.")
    laptop.ask("What time is it in Europe/Paris? Use the timezone Europe/Paris.", LEAF)
    laptop.ask("And in the city of Tokyo?", PLAIN)
    laptop.ask("Thank you. Which of the two is further east?")


def picture(page: Page, name: str, first: Locator, last: Locator) -> None:
    """Write what lies between the upper edge of one element and the lower edge of another."""
    top, bottom = first.bounding_box(), last.bounding_box()
    assert top is not None
    assert bottom is not None
    scrolled = page.evaluate("scrollY")
    clip = {
        "x": top["x"] - MARGIN,
        "y": top["y"] + scrolled - MARGIN,
        "width": bottom["x"] + bottom["width"] - top["x"] + 2 * MARGIN,
        "height": bottom["y"] + bottom["height"] - top["y"] + 2 * MARGIN,
    }
    page.screenshot(path=DOCS / f"console-{name}.png", clip=clip, full_page=True)


def test_pictures_are_made(window, gateway, keys) -> None:
    with window(gateway) as visitor:
        visitor.sign_in()
        talk(gateway, keys[1])
        page = visitor.open("/console/conversations")
        expect(page.locator(".talk")).to_have_count(4)
        picture(page, "conversations", page.locator("h1"), page.locator(".talk").last)

        # So high that the box of tokens, a part of the window, ends with a whole row.
        page.set_viewport_size({"width": 1280, "height": 907})
        page.locator(".talk a").first.click()
        expect(page.locator(".id-chip").first).to_be_visible()
        page.locator(".to-id").first.click()
        # The box begins with a whole row, the head of the last tool's definition.
        head = page.locator(".run-head", has_text="on plain_time").first
        page.locator(".ids").evaluate(
            "(box, top) => { box.scrollTop = top + parseFloat(getComputedStyle(box).paddingTop); }",
            head.evaluate("each => new DOMMatrix(getComputedStyle(each).transform).f"),
        )
        expect(page.locator(".id-wait")).to_have_count(0)
        picture(page, "conversation", page.locator(".back"), page.locator(".viewer"))

        page.locator(".calls details").first.evaluate("each => each.open = true")
        picture(page, "turns", page.locator("#turns-title"), page.locator(".request").nth(1))
