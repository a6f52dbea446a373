"""`GET /`: a page that says what this is and where things are, the same as JSON; and the documentation at `/docs`."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gateway.app.process import guard_endpoints
from gateway.config.gateway_config import GatewayConfig, ServeConfig
from gateway.documentation.pages import CommandSpelling
from gateway.observe.metrics import Metrics
from gateway.serve.http.plain_pages import Home

pytestmark = pytest.mark.anyio


ROOT = Path(__file__).parents[4]
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"}


def client(app) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1")


def home(**serve) -> Home:
    return Home(PlainTextResponse("else"), ServeConfig(**serve), {"/console": "pages of another package"})


async def test_browser_gets_a_page_that_says_where_things_are_and_runs_nothing():
    async with client(home()) as http:
        page = await http.get("/", headers=BROWSER)

    (style,) = re.findall("<style>(.*?)</style>", page.text)
    policy = page.headers["content-security-policy"]
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert all(path in page.text for path in ("/v1/chat/completions", "/mcp", "codec-gateway status"))
    assert policy.startswith("default-src 'none'; ")
    assert f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in policy
    assert re.findall(r"<script|<img|<link|\son\w+=", page.text) == []
    assert set(re.findall(r"https?://[^/]+", page.text)) == {"http://127.0.0.1:8601"}


async def test_every_api_that_is_served_is_named():
    routes = {
        path
        for package in ("openai", "responses", "messages", "codec")
        for file in (ROOT / "gateway" / "serve" / package).glob("*.py")
        for path in re.findall(r'Route\(\s*f?"([^"{]+)', file.read_text())
    }
    async with client(home()) as http:
        named = (await http.get("/", headers={"Accept": "application/json"})).json()["paths"]

    assert len(routes) > 10
    text = " ".join((*named, *named.values()))
    below = tuple(f"{path}/" for path in named)
    assert [path for path in routes if path not in text and not path.startswith(below)] == []


@pytest.mark.parametrize(
    ("serve", "console"),
    [
        ({}, "http://127.0.0.1:8601/console"),
        ({"admin_host": "::1", "admin_port": 9}, "http://[::1]:9/console"),
        ({"admin_port": 0}, "/console"),
        ({"host": "0.0.0.0"}, "/console"),
        ({"admin_host": "10.0.0.7"}, "/console"),
    ],
)
async def test_console_is_named_with_its_address_only_to_readers_on_the_same_machine(serve, console):
    async with client(home(**serve)) as http:
        admin = (await http.get("/", headers={"Accept": "application/json"})).json()["admin"]

    assert next((path for path in admin if path.endswith("/console")), None) == console
    assert any(path.endswith("/metrics") for path in admin)


@pytest.mark.parametrize(
    ("serve", "command"),
    [
        ({}, "codec-gateway status"),
        ({"host": "0.0.0.0"}, "codec-gateway status"),
        ({"admin_port": 9}, "codec-gateway status --admin http://127.0.0.1:9"),
        ({"admin_host": "::1", "admin_port": 9}, "codec-gateway status --admin http://[::1]:9"),
        ({"admin_port": 0}, "codec-gateway status --admin URL"),
        ({"host": "0.0.0.0", "admin_port": 9}, "codec-gateway status --admin URL"),
    ],
)
async def test_status_command_names_an_admin_port_that_it_would_not_ask(serve, command):
    async with client(home(**serve)) as http:
        admin = (await http.get("/", headers={"Accept": "application/json"})).json()["admin"]

    assert f"the command {command} prints it" in " ".join(admin.values())


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/why"])
async def test_console_is_not_here_and_its_address_is_named_on_the_same_machine(path):
    url = "http://127.0.0.1:9/console"
    async with client(home(admin_port=9)) as http:
        page, answer = await http.get(path, headers=BROWSER), await http.get(path)
        posted = await http.post(path)

    assert (page.status_code, answer.status_code, posted.text) == (404, 404, "else")
    assert f'<a href="{url}">' in page.text
    assert answer.json()["error"]["message"] == f"this is on the admin port: {url}"


@pytest.mark.parametrize(
    ("path", "serve"),
    [
        ("/console", {"host": "0.0.0.0"}),
        ("/console", {"admin_port": 0}),
        ("/consoles", {}),
    ],
)
async def test_console_without_an_address_for_the_reader_is_a_path_like_others(path, serve):
    async with client(home(**serve)) as http:
        assert (await http.get(path, headers=BROWSER)).text == "else"


async def test_browser_that_asks_for_an_unknown_page_of_the_documentation_gets_a_page():
    async with client(home()) as http:
        page, answer = await http.get("/docs/<b>no", headers=BROWSER), await http.get("/docs/no")

    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "no page is called &#x27;&lt;b&gt;no&#x27;" in page.text
    assert '<a href="/docs/">' in page.text
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.9"},
        {"X-Forwarded-Proto": "https"},
        {"Forwarded": "for=203.0.113.9"},
        {"Host": "gateway.example"},
        {"Host": "[::1].example"},
    ],
)
async def test_reader_behind_a_proxy_learns_neither_the_admin_port_nor_a_folder(headers, monkeypatch):
    monkeypatch.setattr(
        "gateway.serve.http.plain_pages.own_spelling", lambda: CommandSpelling("/home/ada/bin/", "/home/ada/bin")
    )
    app = home()
    async with client(app) as http:
        here = [(await http.get(path)).text for path in ("/", "/docs/mcp-clients")]
        there = [(await http.get(path, headers=headers)).text for path in ("/", "/docs/mcp-clients")]

    assert "127.0.0.1:8601" in here[0]
    assert "/home/ada/bin" in here[1]
    assert "127.0.0.1:8601" not in there[0]
    assert "/home/ada" not in "".join(there)


async def test_name_of_a_missing_page_is_cut_in_the_answer():
    async with client(home()) as http:
        answer = await http.get("/docs/" + "a" * 30_000)

    assert (answer.status_code, len(answer.content) < 500) == (404, True)


async def test_program_that_asks_for_json_gets_json():
    async with client(home()) as http:
        answer = await http.get("/", headers={"Accept": "application/json"})

    assert answer.json()["name"] == "codec-gateway"
    assert "/mcp" in answer.json()["paths"]


@pytest.mark.parametrize(
    ("method", "path", "text"),
    [
        ("HEAD", "/", ""),
        ("POST", "/", "else"),
        ("GET", "/v1", "else"),
        ("GET", "/docsx", "else"),
        ("POST", "/docs/", "else"),
    ],
)
async def test_only_the_root_is_a_page(method, path, text):
    async with client(home()) as http:
        answer = await http.request(method, path)

    assert answer.text == text


async def test_page_asks_for_no_credential_and_everything_else_does():
    config = GatewayConfig(serve=ServeConfig(token="secret"))
    app = guard_endpoints(Route("/x", lambda _: PlainTextResponse("x")), config, Metrics().access)
    async with client(app) as http:
        page, docs, other = await http.get("/"), await http.get("/docs/"), await http.get("/x")

    assert (page.status_code, docs.status_code, other.status_code) == (200, 200, 401)


async def test_browser_gets_the_documentation_as_html_and_a_program_as_markdown():
    async with client(home()) as http:
        index, text = await http.get("/docs/", headers=BROWSER), await http.get("/docs/operate.md")
        again = await http.get("/docs/clients/cursor", headers=BROWSER)
        picture, program = await http.get("/docs/path.svg"), await http.get("/docs/examples/agent/agent.py")
        moved = await http.get("/docs")

    assert "<h1" in index.text
    assert 'href="operate"' in index.text
    assert text.text.startswith("# Operate")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert '<a href="../">all pages</a>' in again.text
    assert again.headers["content-security-policy"].startswith("default-src 'none'; ")
    assert (picture.headers["content-type"], program.headers["content-type"]) == (
        "image/svg+xml",
        "text/plain; charset=utf-8",
    )
    assert "sandbox" in picture.headers["content-security-policy"]
    assert (moved.status_code, moved.headers["location"]) == (307, "/docs/")


@pytest.mark.parametrize(
    "path", ["/docs/nope", "/docs/../pyproject.toml", "/docs/%2e%2e/pyproject.toml", "/docs//etc/passwd"]
)
async def test_only_names_of_pages_are_answered_below_docs(path):
    async with client(home()) as http:
        answer = await http.get(path, headers=BROWSER)

    assert answer.status_code == 404 or answer.text == "else"
