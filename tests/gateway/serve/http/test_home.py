"""`GET /`: a page that says what this is, the same as JSON, and nothing of the gateway in either."""

import re
from base64 import b64encode
from hashlib import sha256

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gateway.config.model import GatewayConfig, ServeConfig
from gateway.observe.metrics import Metrics
from gateway.serve.auth.guards import guard_endpoints
from gateway.serve.http.home import Home

pytestmark = pytest.mark.anyio


def client(app) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1")


async def test_browser_gets_a_page_that_says_where_things_are_and_runs_nothing():
    async with client(Home(PlainTextResponse("else"))) as http:
        page = await http.get(
            "/", headers={"Accept": "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"}
        )

    (style,) = re.findall("<style>(.*?)</style>", page.text)
    policy = page.headers["content-security-policy"]
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert all(path in page.text for path in ("/v1/chat/completions", "/mcp", "codec-gateway status"))
    assert policy.startswith("default-src 'none'; ")
    assert f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in policy
    assert re.findall(r"<script|<img|<link|\son\w+=|https?:", page.text) == []


async def test_program_that_asks_for_json_gets_json():
    async with client(Home(PlainTextResponse("else"))) as http:
        answer = await http.get("/", headers={"Accept": "application/json"})

    assert answer.json()["name"] == "codec-gateway"
    assert "/mcp" in answer.json()["paths"]


@pytest.mark.parametrize(("method", "path", "text"), [("HEAD", "/", ""), ("POST", "/", "else"), ("GET", "/v1", "else")])
async def test_only_the_root_is_a_page(method, path, text):
    async with client(Home(PlainTextResponse("else"))) as http:
        answer = await http.request(method, path)

    assert answer.text == text


async def test_page_asks_for_no_credential_and_everything_else_does():
    config = GatewayConfig(serve=ServeConfig(token="secret"))
    app = guard_endpoints(Route("/x", lambda _: PlainTextResponse("x")), config, Metrics().access)
    async with client(app) as http:
        page, other = await http.get("/"), await http.get("/x")

    assert (page.status_code, other.status_code) == (200, 401)
