"""Browsers: pages of named origins may call `/mcp` and `/v1` with a credential, others may not."""

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from gateway.app.process import guard_endpoints
from gateway.config.address import origin_of
from gateway.config.gateway_config import GatewayConfig, ServeConfig
from gateway.config.load import load_config
from gateway.errors import ConfigError
from gateway.observe.metrics import Metrics
from tests.cases import each_of

pytestmark = pytest.mark.anyio
PAGE = "http://localhost:6274"
FAR = "https://app.example"
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version,mcp-param-x",
}
WELL_KNOWN = "/.well-known/oauth-protected-resource"
TOKEN = {"Authorization": "Bearer right-token"}


@pytest.fixture
def ask():
    """Sends a request to the guarded endpoints, which answer "here"."""

    async def send(method, path="/mcp", *, origins=(PAGE, FAR), **headers):
        serve = ServeConfig(token="right-token", cors_origins=origins)
        app = guard_endpoints(
            PlainTextResponse("here", headers={"Mcp-Session-Id": "s"}), GatewayConfig(serve=serve), Metrics().access
        )
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8600") as client:
            return await client.request(
                method, path, headers={name.replace("_", "-"): v for name, v in headers.items()}
            )

    return send


@pytest.mark.parametrize("origin", [PAGE, FAR])
@pytest.mark.parametrize(
    "path", ["/mcp", "/mcp/", "/mcp/one", "/sse", "/sse/one", "/v1/chat/completions", f"{WELL_KNOWN}/mcp"]
)
async def test_preflight_of_a_named_page_needs_no_credential_and_allows_what_it_asks_for(ask, path, origin):
    answer = await ask("OPTIONS", path, **{**PREFLIGHT, "Origin": origin})

    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
    assert {"GET", "POST", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", [PAGE, FAR])
async def test_answer_can_be_read_by_a_named_page_with_the_session_s_header(ask, origin):
    answer = await ask("POST", Origin=origin, **TOKEN)

    assert (answer.status_code, answer.text) == (200, "here")
    assert answer.headers["access-control-allow-origin"] == origin
    assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"].split(", ")
    assert "Origin" in answer.headers["vary"]


async def test_named_page_reads_how_to_sign_in_here(ask):
    """Krzysztof318/MailFathom 183: the metadata of the challenge has to be readable, too."""
    answer = await ask("GET", f"{WELL_KNOWN}/mcp", Origin=FAR)

    assert answer.headers["access-control-allow-origin"] == FAR


async def test_refusal_can_be_read_by_a_named_page(ask):
    answer = await ask("POST", Origin=FAR)

    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == FAR
    assert "WWW-Authenticate" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", f"{FAR}.evil.example", f"{FAR}:8443", "http://app.example"]
)
async def test_other_pages_are_told_nothing(ask, origin):
    preflight = await ask("OPTIONS", **{**PREFLIGHT, "Origin": origin})
    answer = await ask("POST", Origin=origin, **TOKEN)

    assert preflight.status_code == 401
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for each in (preflight, answer) for name in each.headers)


async def test_without_named_origins_nothing_is_added(ask):
    preflight = await ask("OPTIONS", origins=(), **PREFLIGHT)
    answer = await ask("POST", origins=(), Origin=PAGE, **TOKEN)

    assert preflight.status_code == 401
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in {**preflight.headers, **answer.headers}


async def test_named_page_on_a_foreign_host_name_is_refused(ask):
    """DNS rebinding is no matter of the page's origin."""
    assert (await ask("POST", Host="evil.example", Origin=FAR, **TOKEN)).status_code == 421


@pytest.mark.parametrize("asked", ["x\r\nset-cookie: a", "a b", "", ","])
async def test_header_names_that_are_none_are_not_repeated(ask, asked):
    answer = await ask("OPTIONS", **{**PREFLIGHT, "Access-Control-Request-Headers": asked})

    assert answer.status_code == 204
    assert "access-control-allow-headers" not in answer.headers


async def test_browser_that_asks_before_it_calls_a_private_network_is_let_in(ask):
    asked = {**PREFLIGHT, "Access-Control-Request-Private-Network": "true"}

    assert (await ask("OPTIONS", **asked)).headers["access-control-allow-private-network"] == "true"
    assert "access-control-allow-private-network" not in (await ask("OPTIONS", **PREFLIGHT)).headers


@each_of(
    ("written", "origin"),
    [
        ("HTTP://LocalHost:6274/", "http://localhost:6274"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        *((each, None) for each in ("*", "app.example", "https://a/path", "https://u@a", "ftp://a", "https://a:x", "")),
    ],
)
def test_origin_is_read_as_browsers_write_it(written, origin):
    assert origin_of(written) == origin


def test_origins_are_read_from_file_and_environment_and_wrong_ones_refused(tmp_path):
    path = tmp_path / "codec-gateway.toml"
    path.write_text('[serve]\ncors_origins = ["http://LOCALHOST:6274/"]\n')
    assert load_config(path, environ={}, cwd=tmp_path).serve.cors_origins == (PAGE,)
    environ = {"CODEC_GATEWAY_SERVE__CORS_ORIGINS": f"{PAGE},{FAR}"}
    assert load_config(path, environ=environ, cwd=tmp_path).serve.cors_origins == (PAGE, FAR)

    path.write_text('[serve]\ncors_origins = ["*"]\n')
    with pytest.raises(ConfigError, match=r"serve.cors_origins: '\*' is no origin: expected http://HOST"):
        load_config(path, environ={}, cwd=tmp_path)
