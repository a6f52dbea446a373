"""What a page of any origin may send without asking first is read by no endpoint that starts something."""

from collections.abc import AsyncGenerator

import httpx2
import pytest

from gateway.app.process import open_app
from gateway.app.services import open_services
from gateway.config.gateway_config import GatewayConfig, TokensConfig

pytestmark = pytest.mark.anyio

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/completions/codec", "/mcp", "/mcp/")
OURS = ("application/json", "application/x-msgpack", "application/x-codec-msgpack", "application/x-codec-protobuf")
UNASKED = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
"""Content types that need no preflight (Fetch, "CORS-safelisted request-header"); their parameters are free."""
JSON_BODY = b'{"jsonrpc":"2.0","id":1,"method":"ping","messages":[{"role":"user","content":"hi"}],"prompt":"hi"}'


@pytest.fixture
async def client() -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of the whole application, without an engine and without servers."""
    config = GatewayConfig(tokens=TokensConfig(map=None))
    async with open_services(config) as services, open_app(services, config) as (app, _):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


@pytest.mark.parametrize("path", PATHS)
async def test_only_content_types_that_need_a_preflight_are_read(client: httpx2.AsyncClient, path: str) -> None:
    written = [kind + more for kind in UNASKED for more in ("", *(f"; {name}" for name in OURS), f"; a={OURS[0]}")]
    for content_type in ("", *written):
        headers = {"accept": "application/json, text/event-stream", "content-type": content_type}
        answer = await client.post(path, content=JSON_BODY, headers=headers)
        assert answer.status_code == 415, content_type
    answer = await client.post(path, content=JSON_BODY, headers={"accept": "application/json, text/event-stream"})
    assert answer.status_code == 415


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON;charset=utf-8", " application/json "])
@pytest.mark.parametrize("path", PATHS[:2])
async def test_json_is_read_however_it_is_written(client: httpx2.AsyncClient, path: str, content_type: str) -> None:
    answer = await client.post(path, content=JSON_BODY, headers={"content-type": content_type})

    # There is no engine here.
    assert answer.status_code == 503
