"""The key as clients of Anthropic's API send it: the same credential in another header, with the same protections."""

import anthropic
import httpx2
import pytest
from anthropic.types.shared import ErrorResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.serve.auth.bearer import BearerAuth, Credentials
from gateway.serve.auth.rate_limiter import FAILURES_AT_ONCE
from gateway.serve.http.request_parts import PRINCIPAL

TOKEN = "a-token-of-ours"
MESSAGES = "/v1/messages"
Headers = list[tuple[str, str]]

pytestmark = pytest.mark.anyio


class Site:
    """What stands behind the sign-in, and a client before it."""

    def __init__(self) -> None:
        self.seen: list[Principal] = []
        self.app: ASGIApp = BearerAuth(self._inside, Credentials(TOKEN), Metrics().access)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope["state"][PRINCIPAL])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})

    async def ask(self, headers: Headers, path: str = MESSAGES, peer: str = "127.0.0.1") -> httpx2.Response:
        transport = httpx2.ASGITransport(app=self.app, client=(peer, 5000))
        async with httpx2.AsyncClient(transport=transport) as client:
            return await client.post(f"http://localhost{path}", headers=headers)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize(
    "headers",
    [
        [("x-api-key", TOKEN)],
        [("x-api-key", f" {TOKEN} ")],
        [("authorization", f"Bearer {TOKEN}")],
        [("authorization", f"Bearer {TOKEN}"), ("x-api-key", TOKEN)],
    ],
)
async def test_one_credential_opens_in_either_header_or_both(site: Site, headers: Headers) -> None:
    assert (await site.ask(headers)).text == "inside"
    assert site.seen == [Principal("operator")]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("x-api-key", "")],
        [("x-api-key", f"{TOKEN}x")],
        [("authorization", f"Bearer {TOKEN}"), ("x-api-key", "another")],
        [("authorization", "Bearer another"), ("x-api-key", TOKEN)],
        [("authorization", f"Bearer {TOKEN}"), ("x-api-key", "")],
        [("authorization", f"Basic {TOKEN}"), ("x-api-key", TOKEN)],
        [("x-api-key", TOKEN), ("x-api-key", TOKEN)],
        [("x-api-key", TOKEN), ("x-api-key", "another")],
    ],
)
async def test_none_two_and_wrong_ones_get_401_in_the_shape_of_anthropic(site: Site, headers: Headers) -> None:
    response = await site.ask(headers)

    body = ErrorResponse.model_validate(response.json(), strict=True)
    assert (response.status_code, body.error.type) == (401, "authentication_error")
    assert body.request_id == response.headers["request-id"]
    assert response.headers["www-authenticate"].startswith("Bearer ")
    assert TOKEN not in response.text
    assert site.seen == []


async def test_two_that_differ_are_told_to_be_one(site: Site) -> None:
    response = await site.ask([("authorization", "Bearer another"), ("x-api-key", "yet another")])

    assert "send one credential" in response.json()["error"]["message"]


async def test_elsewhere_the_header_is_somebody_else_s(site: Site) -> None:
    assert (await site.ask([("x-api-key", TOKEN)], "/mcp")).status_code == 401
    assert (await site.ask([("authorization", f"Bearer {TOKEN}"), ("x-api-key", "another")], "/mcp")).text == "inside"


async def test_guessing_is_slowed_down_as_with_a_bearer(site: Site) -> None:
    for n in range(FAILURES_AT_ONCE):
        assert (await site.ask([("x-api-key", f"guess {n}")])).status_code == 401

    refused = await site.ask([("x-api-key", TOKEN)])

    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await site.ask([("x-api-key", TOKEN)], peer="10.0.0.2")).status_code == 200


@pytest.mark.parametrize(
    ("path", "version", "theirs"),
    [
        ("/v1/messages", False, True),
        ("/v1/messages/count_tokens", False, True),
        ("/v1/models", True, True),
        ("/v1/models", False, False),
        ("/v1/messages-of-others", False, False),
    ],
)
async def test_error_has_the_shape_that_its_client_reads(site: Site, path: str, version: bool, theirs: bool) -> None:
    headers = [("anthropic-version", "2023-06-01")] if version else []

    response = await site.ask(headers, path)

    assert response.status_code == 401
    assert ("request_id" in response.json()) == theirs
    assert ("code" in response.json()["error"]) != theirs


async def test_package_of_anthropic_knows_the_error() -> None:
    site = Site()
    transport = httpx2.ASGITransport(app=site.app)
    for credential in ({"api_key": "wrong"}, {"auth_token": "wrong"}):
        async with (
            httpx2.AsyncClient(transport=transport) as http,
            anthropic.AsyncAnthropic(
                base_url="http://localhost", http_client=http, max_retries=0, **credential
            ) as client,
        ):
            with pytest.raises(anthropic.AuthenticationError) as refused:
                await client.messages.create(model="any", max_tokens=1, messages=[])
            assert refused.value.request_id is not None
            assert refused.value.type == "authentication_error"
