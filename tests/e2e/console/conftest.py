"""A browser over a console: what a person does there, and what must never happen in it.

Playwright is installed by `make console-install` alone, so it is imported where a browser is started.
"""

import json
from array import array
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from socket import create_server
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.responses import PlainTextResponse

from codec_console.mount import ConsoleMount
from gateway.app.services import Services, open_services
from gateway.config.access import ConsoleConfig
from gateway.config.gateway_config import GatewayConfig, TokensConfig
from gateway.context.memory import (
    AnswerRecord,
    CallRecord,
    ConversationMemory,
    GenerationRecord,
    Lived,
    LivedTurn,
    Miss,
    Remembered,
    RequestFigures,
    Shown,
)
from gateway.observe.trajectories import Span
from gateway.serve.admin.extra_pages import WithExtraPages
from leaf_sdk.testing import tiny_map

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

TOOLS = Path(__file__).parents[3] / ".tools" / "console"
PICTURES = TOOLS / "pictures"
TOKEN = "an-operator-s-token-of-enough-length-0123"
SIZES = {"wide": (1280, 900), "narrow": (320, 640)}


class Visitor:
    """A browser's window that is signed in, and what went wrong in it."""

    def __init__(self, page: "Page", admin: str) -> None:
        self.page = page
        self.admin = admin
        self.wrong: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self._on_request)

    def _on_console(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((f"{self.admin}/", "data:")):
            self.wrong.append(f"asked {request.url}")

    def open(self, path: str) -> "Page":
        self.page.goto(f"{self.admin}{path}")
        return self.page

    def sign_in(self) -> None:
        from playwright.sync_api import expect

        page = self.open("/console/sign-in")
        page.locator("input[name=key]").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("navigation", name="Console")).to_be_visible()

    def picture(self, name: str) -> None:
        """Keep what is seen."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def note(self, what: str, figures: Any) -> None:
        """Keep figures beside the pictures."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        with (PICTURES / "figures.txt").open("a") as file:
            file.write(f"{what}: {json.dumps(figures)}\n")

    def judge(self) -> None:
        """No rule of accessibility is broken, and nothing reaches over the page's side."""
        self.page.evaluate((TOOLS / "node" / "node_modules" / "axe-core" / "axe.min.js").read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((told) => told.violations)")
        assert [f"{each['id']}: {[node['html'] for node in each['nodes']][:3]}" for each in found] == []
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


class Rebuilt(NamedTuple):
    """A console in this process, over the services of a real gateway and a memory that a test fills."""

    admin: str
    services: Services
    memory: ConversationMemory
    portal: BlockingPortal

    def remember(self, *nodes: Remembered) -> None:
        """Let these answers be given."""
        for node in nodes:
            self.portal.call(self.memory.remember, node, node.answer_id.encode())


class Words(NamedTuple):
    """What each took part with in an answer."""

    user: str = "What is it?"
    tool: str = "up__tool"
    arguments: str = "{}"
    result: str = "It is."
    model: str = "That is it."
    owner: str = "alice"
    model_name: str = "a-model"
    was: str = "was"
    """What the client changed."""
    tools: str = ""
    """Definitions of tools, before everything else."""
    letters: str = ""
    """More words of the model, an id for each letter: no tokenizer would write them so."""


def answer(words: Words, name: str, number: int = 7, before: Remembered | None = None, made: float = 1.0) -> Remembered:
    """An answer: a question, a call with its result, and the model's last words."""
    tools, user, call, result, said = (
        array("I", _encoded(each)) for each in (words.tools, words.user, words.arguments, words.result, words.model)
    )
    said.extend(tiny_map().encode(letter)[0] for letter in words.letters)
    kept = 0 if before is None else len(before.ids())
    asked = kept + len(tools) + len(user)
    starts = [asked, asked + len(call) + len(result)]
    calls = [{"id": f"c{name}", "function": {"name": words.tool, "arguments": words.arguments}}]
    wrote = {"role": "assistant", "content": "", "tool_calls": calls}
    record = AnswerRecord(
        ended="stop",
        kept=kept,
        spans=[
            *([Span("tools", len(tools))] if tools else []),
            Span("user", len(user)),
            Span("model", len(call)),
            Span("shim", len(result), words.tool),
            Span("model", len(said)),
        ],
        generations=[
            GenerationRecord(
                start=start,
                count=len(ids),
                reasoning=0,
                held=starts[0],
                cached=at,
                prefilled=0,
                prefilled_seconds=0.0,
                first=0.2,
                prompt_seconds=0.1,
                generate_seconds=0.3,
                guessed=False,
                logprobs=array("f", [-0.5] * len(ids)),
            )
            for start, ids, at in ((starts[0], call, kept), (starts[1], said, starts[0]))
        ],
        calls=[CallRecord(f"c{name}", words.tool, None, 0.4, 0, len(result), False)],
        recall_miss=Miss("client_changed", 9, 0, 3, words.was, words.was[::-1]),
    )
    return Remembered(
        owner=words.owner,
        before=before,
        place=1 if before is None else before.place + 2,
        shown=Shown(words.model),
        lived=(
            Lived(wrote, call, LivedTurn(start=starts[0])),
            Lived({"role": "tool", "tool_call_id": f"c{name}", "name": words.tool}, result),
            Lived({"role": "assistant", "content": words.model}, said, LivedTurn()),
        ),
        kept=kept,
        added=tools + user + call + result + said,
        held=0,
        engine=0,
        number=number,
        answer_id=name,
        model=words.model_name,
        map_id=tiny_map().map_id,
        made=made,
        record=record,
        digest=b"",
        figures=RequestFigures(1_234_600, 4, 1_234_567, 4, 1_234_563, "client_changed", tokens_per_second=41.4),
    )


def _encoded(text: str) -> list[int]:
    """Piece by piece: a tokenizer takes long for a word of a megabyte."""
    return [each for at in range(0, len(text), 1000) for each in tiny_map().encode(text[at : at + 1000])]


@asynccontextmanager
async def _served(config: GatewayConfig, most: int) -> AsyncGenerator[tuple[str, Services, ConversationMemory]]:
    memory = ConversationMemory(most)
    async with open_services(config) as services:
        services.engines.maps.add(tiny_map())
        services.agent.recall._memory = memory
        with create_server(("127.0.0.1", 0)) as listening:
            app = WithExtraPages(PlainTextResponse("other pages"), {"/console": ConsoleMount(services.parts)})
            server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, server_header=False))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listening])
                yield f"http://127.0.0.1:{listening.getsockname()[1]}", services, memory
                server.should_exit = True


@pytest.fixture(scope="session")
def run_console() -> Callable[..., AbstractContextManager[Rebuilt]]:
    """Runs a console of these settings. `most`: bytes that are remembered."""

    @contextmanager
    def run(texts: Any, most: int = 100_000_000, **more: Any) -> Iterator[Rebuilt]:
        settings: Mapping[str, Any] = {"tokens": TokensConfig(map=None), "prefix": "always", **more}
        config = GatewayConfig(console=ConsoleConfig(token=TOKEN, texts=texts), **settings)
        with start_blocking_portal() as portal, ExitStack() as stack:
            served = stack.enter_context(portal.wrap_async_context_manager(_served(config, most)))
            try:
                yield Rebuilt(*served, portal)
            finally:
                # As after a test that passed: else a failure would be hidden by those of tasks that were cancelled.
                stack.close()

    return run


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """A real Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def window(browser: "Browser") -> Callable[..., AbstractContextManager[Visitor]]:
    """Opens a window on a console; whatever went wrong in it fails the test."""

    @contextmanager
    def opened(gateway: Any, size: str = "wide", scheme: Any = "light", **options: Any) -> Iterator[Visitor]:
        width, height = SIZES[size]
        context: BrowserContext = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, **options
        )
        with context:
            visitor = Visitor(context.new_page(), gateway.admin)
            yield visitor
            assert visitor.wrong == []

    return opened


@pytest.fixture(scope="session")
def token() -> str:
    """The operator's secret."""
    return TOKEN


@pytest.fixture(scope="session")
def answered() -> Callable[..., Remembered]:
    """Makes an answer of what each said (`user=`, `tool=`, ...), in a conversation."""

    def make(
        name: str, *, number: int = 7, before: Remembered | None = None, made: float = 1.0, **words: str
    ) -> Remembered:
        return answer(Words(**words), name, number, before, made)

    return make
