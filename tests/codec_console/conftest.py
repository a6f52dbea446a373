"""A console over the services of a real gateway, and a browser's part of what a person does there."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from codec_console.mount import ConsoleMount
from gateway.app.services import Services, open_services
from gateway.config.access import ConsoleConfig
from gateway.config.gateway_config import GatewayConfig, TokensConfig, UpstreamConfig
from gateway.serve.admin.extra_pages import WithExtraPages

TOKEN = "an-operators-token-of-40-characters-here"
HOST = "http://127.0.0.1:8601"
VOID = {"meta", "link", "input", "br", "hr", "img"}


@dataclass
class Element:
    """One element of a page, as a parser of HTML reads it."""

    tag: str
    attributes: dict[str, str | None]
    parent: "Element | None"
    parts: list["Element | str"] = field(default_factory=list)

    def all(self, tag: str | None = None, **attributes: str) -> list["Element"]:
        """Every element inside with this tag and these attributes (`class_` for `class`)."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        found: list[Element] = []
        for each in self.parts:
            if isinstance(each, Element):
                if tag in (None, each.tag) and wanted.items() <= each.attributes.items():
                    found.append(each)
                found += each.all(tag, **attributes)
        return found

    def one(self, tag: str | None = None, **attributes: str) -> "Element":
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def text(self) -> str:
        """All text inside."""
        return "".join(each if isinstance(each, str) else each.text for each in self.parts)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.at = Element("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), self.at)
        assert len(element.attributes) == len(attrs), f"an attribute stands twice: {attrs}"
        self.at.parts.append(element)
        if tag not in VOID:
            self.at = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.parts.append(Element(tag, dict(attrs), self.at))

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.parts.append(data)


def read_page(text: str) -> Element:
    """A page as a tree; unbalanced markup fails."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.at is reader.root
    return reader.root


class Browser:
    """Keeps cookies, names its origin as browsers do, and reads pages."""

    def __init__(self, http: httpx2.AsyncClient, mount: ConsoleMount) -> None:
        self.http = http
        self.mount = mount

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(path, headers={"sec-fetch-site": "same-origin", **headers})

    async def page(self, path: str) -> Element:
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return read_page(answer.text)

    async def post(self, path: str, form: dict[str, str], **headers: str) -> httpx2.Response:
        sent = {"origin": HOST, "sec-fetch-site": "same-origin", **headers}
        return await self.http.post(path, data=form, headers={k: v for k, v in sent.items() if v})

    async def csrf(self) -> str:
        page = await self.page("/console/why")
        return page.one("form", action="/console/sign-out").one("input", name="csrf").attributes["value"] or ""

    async def send(self, path: str, form: dict[str, str]) -> httpx2.Response:
        """A form of a page, with what proves that it is one."""
        return await self.post(path, {"csrf": await self.csrf(), **form})

    def start_key(self) -> str:
        """The key of the address that the start prints."""
        url = self.mount.start_url(HOST)
        assert url is not None
        return parse_qs(urlsplit(url).query)["key"][0]

    async def sign_in(self) -> httpx2.Response:
        return await self.post("/console/sign-in", {"key": self.start_key()})


@dataclass
class Site:
    """A running gateway with its console."""

    services: Services
    browser: Browser


def config_of(*upstreams: UpstreamConfig, **more: object) -> GatewayConfig:
    settings = {"tokens": TokensConfig(map=None), "console": ConsoleConfig(token=TOKEN), **more}
    return GatewayConfig(upstreams=upstreams, prefix="always", **settings)  # pyright: ignore[reportArgumentType]


@asynccontextmanager
async def running(config: GatewayConfig, *, peer: str = "127.0.0.1") -> AsyncGenerator[Site]:
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(open_services(config))
        yield Site(services, await browser_of(stack, services, peer))


async def browser_of(stack: AsyncExitStack, services: Services, peer: str = "127.0.0.1") -> Browser:
    mount = ConsoleMount(services.parts)
    port = WithExtraPages(PlainTextResponse("other pages"), {"/console": mount})
    transport = httpx2.ASGITransport(app=port, client=(peer, 50_000))
    return Browser(await stack.enter_async_context(httpx2.AsyncClient(transport=transport, base_url=HOST)), mount)


@pytest.fixture
def run_console() -> Callable[..., object]:
    """Runs a gateway of these settings with its console."""
    return running


@pytest.fixture
async def site(anyio_backend: str) -> AsyncGenerator[Site]:
    """A gateway without servers, and a browser that is not signed in."""
    async with running(config_of()) as here:
        yield here


@pytest.fixture
async def browser(site: Site) -> Browser:
    """A browser that is signed in."""
    assert (await site.browser.sign_in()).status_code == 303
    return site.browser


@pytest.fixture
def settings_of() -> Callable[..., GatewayConfig]:
    return config_of


@pytest.fixture
def page_of() -> Callable[[str], Element]:
    return read_page


@pytest.fixture(scope="session")
def map_path(tmp_path_factory: pytest.TempPathFactory, model_map_bytes: bytes) -> Path:
    """The token map of the packaged model as a file."""
    path = tmp_path_factory.mktemp("console") / "map.json"
    path.write_bytes(model_map_bytes)
    return path
