"""Access tokens by our own credentials: where they come from, how long they are kept, and who never gets the secret."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import parse_qs

import anyio
import pytest

from gateway.config.gateway_config import ClientCredentials
from gateway.observe.logs import get_logger
from gateway.proxy.transport.http.client import HttpClient, open_http_client
from gateway.proxy.transport.oauth.discovery import read_resource
from gateway.proxy.transport.oauth.token_endpoint import AGAIN, ClientCredentialsGrant
from gateway.proxy.transport.transport_interface import NoAnswer, Transport
from tests.cases import each_of

from .raw_server import Asked, RawServer, Reply, raw_server

pytestmark = pytest.mark.anyio
SECRET = "s3cr&t"
METADATA = "/.well-known/oauth-protected-resource/mcp"
SERVER = "/.well-known/oauth-authorization-server"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Guarded:
    """An MCP server and its authorization server at one address, both as honest as the test wants."""

    def __init__(self) -> None:
        self.server = RawServer()
        self.metadata: dict[str, Any] | None = {}
        self.issuer: dict[str, Any] | None = {}
        self.token: dict[str, Any] = {}
        self.token_status = 200
        self.wanted: set[str] = set()
        self.challenge = "Bearer"
        self.refusal = 401
        self.issued = 0

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    async def answer(self, asked: Asked, reply: Reply) -> None:
        if asked.target == METADATA and self.metadata is not None:
            named = {"resource": self.url, "authorization_servers": [self.origin]}
            await reply.whole(200, json.dumps({**named, **self.metadata}).encode(), "application/json")
        elif asked.target == SERVER and self.issuer is not None:
            named = {"issuer": self.origin, "token_endpoint": f"{self.origin}/token"}
            await reply.whole(200, json.dumps({**named, **self.issuer}).encode(), "application/json")
        elif asked.target == "/token":
            self.issued += 1
            document = {"access_token": f"t{self.issued}", "token_type": "Bearer", "expires_in": 100, **self.token}
            await reply.whole(self.token_status, json.dumps(document).encode(), "application/json")
        elif asked.target != "/mcp":
            await reply.whole(404)
        elif asked.headers.get("authorization", "").removeprefix("Bearer ") not in self.wanted:
            await reply.whole(self.refusal, www_authenticate=self.challenge)
        else:
            await reply.result(asked, {"as": asked.headers["authorization"]})

    @property
    def forms(self) -> list[dict[str, list[str]]]:
        return [parse_qs(asked.body.decode()) for asked in self.server.asked if asked.target == "/token"]

    def targets(self) -> list[str]:
        return [asked.target for asked in self.server.asked]


@pytest.fixture
async def guarded() -> AsyncGenerator[Guarded]:
    made = Guarded()
    async with raw_server(made.answer) as server:
        made.server = server
        yield made


@pytest.fixture
async def client() -> AsyncGenerator[HttpClient]:
    async with open_http_client() as client:
        yield client


def credentials(**more: Any) -> ClientCredentials:
    return ClientCredentials("me@example", SECRET, **more)


async def call(transport: Transport) -> dict[str, Any]:
    with anyio.fail_after(20):
        return await transport.request("tools/call", {"name": "x"})


async def test_token_of_the_configured_endpoint_goes_with_every_request_and_is_fetched_once(opened, guarded, client):
    guarded.wanted = {"t1"}
    oauth = credentials(token_url=f"{guarded.origin}/token", scope="a b")
    async with (
        opened(guarded.url, oauth=oauth, client=client) as one,
        opened(guarded.url, oauth=oauth, client=client) as two,
    ):
        results = await asyncio.gather(*(call(transport) for transport in (one, two) for _ in range(10)))

    assert {result["as"] for result in results} == {"Bearer t1"}
    (form,) = guarded.forms
    assert form == {"grant_type": ["client_credentials"], "resource": [guarded.url], "scope": ["a b"]}
    (asking,) = [asked for asked in guarded.server.asked if asked.target == "/token"]
    assert asking.headers["content-type"] == "application/x-www-form-urlencoded"
    pair = base64.b64decode(asking.headers["authorization"].removeprefix("Basic "))
    assert pair == b"me%40example:s3cr%26t"


async def test_endpoint_is_found_by_what_the_server_says_when_it_refuses(opened, guarded, caplog):
    guarded.wanted = {"t1"}
    guarded.challenge = f'Bearer resource_metadata="{guarded.origin}{METADATA}", scope="read"'
    async with opened(guarded.url, oauth=credentials()) as transport:
        assert await call(transport) == {"as": "Bearer t1"}
        assert await call(transport) == {"as": "Bearer t1"}

    assert guarded.targets() == ["/mcp", METADATA, SERVER, "/token", "/mcp", "/mcp"]
    assert guarded.forms[0]["scope"] == ["read"]
    assert "set `oauth.issuer`" in caplog.text
    assert SECRET not in caplog.text
    assert "t1" not in caplog.text


async def test_metadata_is_looked_for_where_it_belongs_when_the_refusal_does_not_say(opened, guarded):
    guarded.wanted = {"t1"}
    guarded.metadata = {"scopes_supported": ["x", "y"]}
    async with opened(guarded.url, oauth=credentials()) as transport:
        assert await call(transport) == {"as": "Bearer t1"}

    assert guarded.forms[0]["scope"] == ["x y"]


async def test_issuer_of_the_configuration_is_asked_before_anybody_refuses(opened, guarded):
    guarded.wanted = {"t1"}
    guarded.metadata = {"authorization_servers": ["http://evil.example"]}
    async with opened(guarded.url, oauth=credentials(issuer=guarded.origin)) as transport:
        assert await call(transport) == {"as": "Bearer t1"}

    assert guarded.targets() == [SERVER, "/token", "/mcp"]


async def test_server_that_takes_the_secret_only_in_the_body_gets_it_there(opened, guarded):
    guarded.wanted = {"t1"}
    guarded.issuer = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    async with opened(guarded.url, oauth=credentials(issuer=guarded.origin)) as transport:
        await call(transport)

    assert guarded.forms[0]["client_id"] == ["me@example"]
    assert guarded.forms[0]["client_secret"] == [SECRET]
    (asking,) = [asked for asked in guarded.server.asked if asked.target == "/token"]
    assert "authorization" not in asking.headers


@pytest.mark.parametrize(
    ("what", "document", "words"),
    [
        ("metadata", {"resource": "http://other.example/mcp"}, "metadata describes 'http://other.example/mcp'"),
        ("metadata", {"resource": 7}, "metadata describes 7"),
        ("metadata", {"authorization_servers": []}, "does not say which authorization server"),
        ("metadata", {"authorization_servers": "x"}, "does not say which authorization server"),
        (
            "metadata",
            {"authorization_servers": ["file:///etc/passwd"]},
            "names 'file:///etc/passwd', which is not an http",
        ),
        ("metadata", {"authorization_servers": ["http://a..b/"]}, "names 'http://a..b/', which is not an http"),
        ("metadata", {"authorization_servers": ["https://a\0b/"]}, "which is not an http"),
        ("metadata", {"authorization_servers": ["http://as.example/"]}, "would receive our secret unencrypted"),
        ("metadata", None, "does not say which authorization server"),
        ("issuer", {"issuer": "http://other.example"}, "names another issuer, 'http://other.example'"),
        ("issuer", {"token_endpoint": None}, "names no token endpoint"),
        ("issuer", {"token_endpoint": f"https://{'a.' * 10_000}com/"}, "names no token endpoint"),
        ("issuer", {"token_endpoint": "http://other.example/token"}, "would receive our secret unencrypted"),
        ("issuer", {"token_endpoint": "https://127.0.0.1:1/token"}, "private address 127.0.0.1"),
        ("issuer", None, "publishes no metadata"),
    ],
)
async def test_metadata_that_can_not_be_believed_gets_no_secret(opened, guarded, what, document, words):
    setattr(guarded, what, document)
    async with opened(guarded.url, oauth=credentials()) as transport:
        with pytest.raises(NoAnswer, match=words):
            await call(transport)

    assert "/token" not in guarded.targets()


async def test_server_can_not_lead_us_into_our_own_network(opened, guarded):
    async with raw_server(guarded.answer) as inner:
        guarded.challenge = f'Bearer resource_metadata="http://127.0.0.1:{inner.port}/admin"'
        async with opened(guarded.url, oauth=credentials()) as transport:
            with pytest.raises(NoAnswer, match="private address"):
                await call(transport)

    assert inner.asked == []


async def test_secret_goes_to_no_other_issuer_than_the_configured_one(opened, guarded):
    guarded.issuer = {"issuer": "https://evil.example"}
    async with opened(guarded.url, oauth=credentials(issuer=guarded.origin)) as transport:
        with pytest.raises(NoAnswer, match=r"names another issuer, 'https://evil\.example'"):
            await call(transport)

    assert "/token" not in guarded.targets()


async def test_refused_token_is_replaced_once_and_the_request_repeated(opened, guarded, client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_endpoint.AGAIN", 0.0)
    guarded.wanted = {"t1"}
    oauth = credentials(token_url=f"{guarded.origin}/token")
    async with opened(guarded.url, oauth=oauth, client=client) as transport:
        await call(transport)
        guarded.wanted = {"t2"}
        assert await call(transport) == {"as": "Bearer t2"}
        guarded.wanted = set()
        with pytest.raises(NoAnswer, match="HTTP 401"):
            await call(transport)

    assert guarded.issued == 3


async def test_token_that_never_helps_is_not_asked_for_again_and_again(opened, guarded):
    oauth = credentials(token_url=f"{guarded.origin}/token")
    async with opened(guarded.url, oauth=oauth) as transport:
        for _ in range(10):
            with pytest.raises(NoAnswer, match="HTTP 401"):
                await call(transport)

    assert guarded.issued == 1


async def test_scope_that_the_server_misses_is_asked_for_beside_those_we_had(opened, guarded):
    guarded.refusal = 403
    guarded.wanted = {"t2"}
    guarded.challenge = 'Bearer error="insufficient_scope", scope="write read"'
    async with opened(guarded.url, oauth=credentials(token_url=f"{guarded.origin}/token", scope="read")) as transport:
        assert await call(transport) == {"as": "Bearer t2"}
        guarded.wanted = set()
        with pytest.raises(NoAnswer, match="HTTP 403"):
            await call(transport)

    assert [form["scope"] for form in guarded.forms] == [["read"], ["read write"]]


async def test_server_that_misses_other_scopes_each_time_is_not_followed_for_ever(opened, guarded):
    guarded.refusal = 403
    async with opened(guarded.url, oauth=credentials(token_url=f"{guarded.origin}/token", scope="read")) as transport:
        for n in range(12):
            scopes = " ".join(f"{n}-{'x' * 96}-{i}" for i in range(10))
            guarded.challenge = f'Bearer error="insufficient_scope", scope="{scopes}"'
            with pytest.raises(NoAnswer, match="HTTP 403"):
                await call(transport)

    longest = max(len(form["scope"][0]) for form in guarded.forms)
    assert 3000 < longest <= 4096
    assert guarded.issued == 1 + longest // 1000


async def test_refusal_for_another_reason_than_scope_is_final(opened, guarded):
    guarded.refusal = 403
    async with opened(guarded.url, oauth=credentials(token_url=f"{guarded.origin}/token")) as transport:
        with pytest.raises(NoAnswer, match="HTTP 403"):
            await call(transport)

    assert guarded.issued == 1


async def test_authorization_server_that_knows_no_resources_is_asked_without(opened, guarded):
    guarded.wanted = {"t2"}
    answers = [(400, {"access_token": None, "error": "invalid_target"}), (200, {})]

    async def answer(asked: Asked, reply: Reply) -> None:
        if asked.target == "/token":
            guarded.token_status, guarded.token = answers[guarded.issued]
        await guarded.answer(asked, reply)

    async with raw_server(answer) as server:
        guarded.server = server
        async with opened(guarded.url, oauth=credentials(token_url=f"{guarded.origin}/token")) as transport:
            assert await call(transport) == {"as": "Bearer t2"}

    first, second = guarded.forms
    assert "resource" in first
    assert "resource" not in second


async def test_credentials_that_are_refused_are_named_and_not_shown(opened, guarded, caplog):
    guarded.token_status = 401
    guarded.token = {"access_token": None, "error": "invalid_client", "error_description": "who\x1b[0m?"}
    oauth = credentials(token_url=f"{guarded.origin}/token")
    async with opened(guarded.url, oauth=oauth) as transport:
        for _ in range(3):
            with pytest.raises(NoAnswer, match=r"HTTP 401 Unauthorized \(invalid_client who\\x1b\[0m\?\)") as refused:
                await call(transport)

    assert SECRET not in str(refused.value) + caplog.text
    assert guarded.issued == 1
    assert "/mcp" not in guarded.targets()


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (7, "answered HTTP 200 OK"),
        ("", "answered HTTP 200 OK"),
        ("x" * 20_000, "answered HTTP 200 OK"),
        *((token, "issued one that is not visible ASCII") for token in ("a\r\nb: c", "a\0", "a\x1b[0m", "a b", "tök")),
    ],
)
async def test_token_that_is_none_is_refused(opened, guarded, token, words):
    guarded.token = {"access_token": token, "error": {"nested": [1]}}
    async with opened(guarded.url, oauth=credentials(token_url=f"{guarded.origin}/token")) as transport:
        with pytest.raises(NoAnswer, match=f"no access token: its authorization server {words}"):
            await call(transport)

    assert "/mcp" not in guarded.targets()


async def test_authorization_server_that_is_away_is_said_and_tried_again_later(client):
    async with raw_server(Guarded().answer) as server:
        pass
    clock = Clock()
    oauth = credentials(token_url=f"http://127.0.0.1:{server.port}/token")
    grant = ClientCredentialsGrant("http://127.0.0.1:1/mcp", oauth, client, get_logger("test"), clock)
    for _ in range(2):
        with pytest.raises(NoAnswer, match="no access token: can't connect"):
            await grant.headers()
    clock.now = AGAIN
    with pytest.raises(NoAnswer, match="no access token"):
        await grant.headers()


async def test_authorization_server_that_hangs_is_given_up(client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_endpoint.FETCH_TIME", 0.1)

    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.gone()

    async with raw_server(answer) as server:
        oauth = credentials(token_url=server.url)
        grant = ClientCredentialsGrant("http://127.0.0.1:1/mcp", oauth, client, get_logger("test"))
        with pytest.raises(NoAnswer, match="did not answer within"):
            await grant.headers()


@pytest.mark.parametrize(
    ("told", "renewed"),
    [
        ({"expires_in": 100}, 70.0),
        ({"expires_in": 10}, 5.0),
        ({"expires_in": "soon"}, 3570.0),
        ({"expires_in": -1}, 3570.0),
        ({"expires_in": 10**400}, 365 * 86_400 - 30.0),
    ],
)
async def test_token_is_renewed_a_little_before_it_expires(guarded, client, told, renewed):
    guarded.token = told
    clock = Clock()
    oauth = credentials(token_url=f"{guarded.origin}/token")
    grant = ClientCredentialsGrant(guarded.url, oauth, client, get_logger("test"), clock)
    seen: list[str] = []
    for now in (0.0, renewed - 0.1, renewed):
        clock.now = now
        seen.append((await grant.headers())["authorization"])

    assert seen == ["Bearer t1", "Bearer t1", "Bearer t2"]


@each_of(
    ("name", "url", "fits"),
    [
        ("http://a/mcp", "http://a/mcp", True),
        ("http://a", "http://a/mcp", True),
        ("http://a/", "http://a/mcp", True),
        ("http://a/mcp/", "http://a/mcp", True),
        ("http://a/mc", "http://a/mcp", False),
        ("http://a/mcp/x", "http://a/mcp", False),
        ("https://a/mcp", "http://a/mcp", False),
        ("http://a:8080/mcp", "http://a/mcp", False),
        ("urn:x", "http://a/mcp", False),
    ],
)
def test_metadata_is_about_a_server_at_or_above_its_url(name, url, fits):
    if fits:
        assert read_resource({"resource": name}, url).name == name
    else:
        with pytest.raises(NoAnswer):
            read_resource({"resource": name}, url)
