"""A caller's access token is exchanged for one of the server's: what is asked for, and what is refused."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import parse_qsl

import anyio
import pytest

from gateway.config.access import ExchangeConfig
from gateway.observe.logs import get_logger
from gateway.proxy.caller import CallerToken
from gateway.proxy.transport.http.client import HttpClient, open_http_client
from gateway.proxy.transport.oauth import token_endpoint
from gateway.proxy.transport.oauth.token_endpoint import AGAIN, TokenExchange
from gateway.proxy.transport.transport_interface import NoAnswer

from .raw_server import Asked, RawServer, Reply, raw_server

pytestmark = pytest.mark.anyio
ISSUER, GATEWAY = "https://login.example", "https://gateway.example/mcp"
SECRET, SUBJECT = "s3cr&t", "header.subject.signature"
DOCS = "http://docs.example/mcp"
TYPES = "urn:ietf:params:oauth:token-type:"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Exchanger:
    """A token endpoint, as honest as the test wants."""

    def __init__(self) -> None:
        self.server = RawServer()
        self.status = 200
        self.said: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.arrived = anyio.Event()
        self.gate = anyio.Event()
        self.gate.set()
        self.instead: Any = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def forms(self) -> list[dict[str, str]]:
        return [dict(parse_qsl(each.body.decode())) for each in self.server.asked if each.target == "/token"]

    async def answer(self, asked: Asked, reply: Reply) -> None:
        if asked.target == "/.well-known/oauth-authorization-server":
            await reply.message({"issuer": self.origin, "token_endpoint": f"{self.origin}/token", **self.metadata})
            return
        if asked.target != "/token":
            await reply.whole(404)
            return
        number = len(self.forms)
        self.arrived.set()
        await self.gate.wait()
        if self.instead is not None:
            await self.instead(reply)
            return
        issued = {"access_token": f"docs-{number}", "issued_token_type": f"{TYPES}access_token"}
        await reply.message({**issued, "token_type": "Bearer", "expires_in": 300, **self.said}, self.status)


@pytest.fixture
async def exchanger() -> AsyncGenerator[Exchanger]:
    made = Exchanger()
    async with raw_server(made.answer) as server:
        made.server = server
        yield made


@pytest.fixture
async def client() -> AsyncGenerator[HttpClient]:
    async with open_http_client() as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(exchanger, client, clock):
    def made(subject: CallerToken | None = None, **settings: Any) -> TokenExchange:
        where = {"token_url": f"{exchanger.origin}/token"} if "issuer" not in settings else {}
        config = ExchangeConfig("gateway", SECRET, **{**where, **settings})
        exchange = TokenExchange(DOCS, config, client, get_logger("test"), clock, clock)
        exchange.offer(subject or token())
        return exchange

    return made


def token(text: str = SUBJECT, expires: float = 3600.0) -> CallerToken:
    return CallerToken("rights", expires, (ISSUER, GATEWAY), text)


def jwt(**claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


async def sent_by(exchange: TokenExchange) -> str:
    with anyio.fail_after(20):
        return (await exchange.headers()).get("authorization", "")


async def why_not(exchange: TokenExchange) -> str:
    with anyio.fail_after(20), pytest.raises(NoAnswer) as refused:
        await exchange.headers()
    return str(refused.value)


async def test_caller_s_token_is_exchanged_for_one_of_this_server(make, exchanger):
    exchange = make(audience="docs", scope="read")
    assert await sent_by(exchange) == "Bearer docs-1"
    (form,) = exchanger.forms
    assert form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": SUBJECT,
        "subject_token_type": f"{TYPES}access_token",
        "audience": "docs",
        "resource": DOCS,
        "scope": "read",
    }
    (asked,) = exchanger.server.asked
    pair = base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
    assert pair == "gateway:s3cr%26t"


@pytest.mark.parametrize(("resource", "sent"), [(None, DOCS), ("urn:docs", "urn:docs"), ("", None)])
async def test_resource_is_the_server_unless_the_operator_names_another_or_none(make, exchanger, resource, sent):
    await sent_by(make(resource=resource))
    assert exchanger.forms[0].get("resource") == sent
    assert "audience" not in exchanger.forms[0]


async def test_authorization_server_may_have_its_own_name_for_callers_tokens(make, exchanger):
    await sent_by(make(subject_token_type="urn:company:human"))
    assert exchanger.forms[0]["subject_token_type"] == "urn:company:human"


async def test_endpoint_is_found_through_the_issuer_and_no_other(make, exchanger):
    assert await sent_by(make(issuer=exchanger.origin)) == "Bearer docs-1"
    exchanger.metadata = {"issuer": "https://other.example"}
    assert "names another issuer" in await why_not(make(issuer=exchanger.origin))
    assert len(exchanger.forms) == 1


async def test_endpoint_that_the_metadata_puts_elsewhere_in_the_clear_gets_nothing(make, exchanger):
    exchanger.metadata = {"token_endpoint": "http://elsewhere.example/token"}
    assert "unencrypted" in await why_not(make(issuer=exchanger.origin))


async def test_fifty_calls_exchange_once_and_again_before_the_end(make, exchanger, clock):
    exchange = make()
    exchanger.gate = anyio.Event()
    calls = [asyncio.create_task(sent_by(exchange)) for _ in range(50)]
    await exchanger.arrived.wait()
    exchanger.gate.set()
    assert set(await asyncio.gather(*calls)) == {"Bearer docs-1"}

    clock.now = 269.0
    assert await sent_by(exchange) == "Bearer docs-1"
    clock.now = 271.0
    assert await sent_by(exchange) == "Bearer docs-2"
    assert len(exchanger.forms) == 2


async def test_caller_that_leaves_in_the_middle_keeps_nobody_else_from_a_token(make, exchanger):
    exchange = make()
    exchanger.gate = anyio.Event()
    leaving, staying = (asyncio.create_task(sent_by(exchange)) for _ in range(2))
    await exchanger.arrived.wait()
    leaving.cancel()
    exchanger.gate.set()
    assert (await staying).startswith("Bearer docs-")


async def test_token_does_not_outlive_the_one_that_it_was_exchanged_for(make, exchanger, clock):
    exchange = make(token(expires=60.0))
    assert await sent_by(exchange) == "Bearer docs-1"
    clock.now = 61.0
    assert "has expired: call again with a fresh one" in await why_not(exchange)
    assert len(exchanger.forms) == 1
    # Nobody is kept waiting with a fresh one.
    exchange.offer(token("fresh", 900.0))
    assert await sent_by(exchange) == "Bearer docs-2"
    assert exchanger.forms[1]["subject_token"] == "fresh"


async def test_older_token_that_comes_late_is_not_used(make, exchanger, clock):
    exchange = make(token("new", 900.0))
    exchange.offer(token("old", 300.0))
    await sent_by(exchange)
    assert exchanger.forms[0]["subject_token"] == "new"


@pytest.mark.parametrize("expires", [3600.0, 1800.0])
async def test_another_token_is_tried_after_one_that_was_refused_though_it_ends_no_later(make, exchanger, expires):
    exchanger.status, exchanger.said = 400, {"error": "invalid_request"}
    exchange = make()
    await why_not(exchange)
    exchange.offer(token())
    await why_not(exchange)
    assert len(exchanger.forms) == 1
    exchanger.status, exchanger.said = 200, {}
    exchange.offer(token("other", expires))
    assert await sent_by(exchange) == "Bearer docs-2"


async def test_account_is_another_once_a_token_could_not_be_exchanged_and_a_fresh_one_came(make, exchanger, clock):
    exchange = make()
    await sent_by(exchange)
    before = exchange.current()
    exchange.offer(token("renewed", 4000.0))
    assert exchange.current() == before
    exchanger.status, clock.now = 500, 300.0
    await why_not(exchange)
    assert exchange.current() == before
    exchange.offer(token("again", 5000.0))
    assert exchange.current() not in (before, None)
    clock.now = 6000.0
    await why_not(exchange)
    assert exchange.current() is None


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (400, {"error": "invalid_request", "error_description": "Invalid token"}, ["Invalid token", "fresh", "check"]),
        (400, {"error": "invalid_grant"}, ["get a fresh one"]),
        (401, {"error": "invalid_client"}, ["check `exchange` of this server"]),
        (400, {"error": "invalid_target"}, ["invalid_target", "check `exchange` of this server"]),
        (403, {"error": "access_denied"}, ["access_denied", "check `exchange` of this server"]),
        (200, {"access_token": ""}, ["without a token"]),
        (200, {"access_token": "t" * 17_000}, ["at most 16 KiB"]),
        (200, {"access_token": "two words"}, ["not visible ASCII"]),
        (200, {"token_type": "DPoP"}, ["not a bearer token"]),
        (200, {"token_type": "N_A"}, ["not a bearer token"]),
        (200, {"issued_token_type": f"{TYPES}refresh_token"}, ["not an access token"]),
        (200, {"issued_token_type": f"{TYPES}id-jag"}, ["not an access token"]),
        (200, {"issued_token_type": ["x"]}, ["not an access token"]),
        (200, {"access_token": SUBJECT}, ["the caller's own"]),
        (200, {"access_token": jwt(iss=ISSUER, aud=GATEWAY)}, ["this gateway would accept", "exchange.audience"]),
        (200, {"access_token": jwt(iss=ISSUER, aud=["docs", GATEWAY])}, ["this gateway would accept"]),
    ],
)
async def test_useless_or_dangerous_answer_is_an_error_that_says_what_to_do(make, exchanger, status, said, words):
    exchanger.status, exchanger.said = status, said
    why = await why_not(make())
    assert all(each in why for each in words), why
    assert SUBJECT not in why
    assert SECRET not in why


async def renewed_meanwhile(exchange: TokenExchange, exchanger: Exchanger) -> None:
    """Offer a newer token while the one before is exchanged, and let that be answered."""
    await exchanger.arrived.wait()
    exchange.offer(token("newer", 9000.0))
    exchanger.gate.set()


async def test_caller_s_own_token_is_refused_even_if_a_newer_one_came_meanwhile(make, exchanger):
    exchanger.gate, exchanger.said, exchange = anyio.Event(), {"access_token": SUBJECT}, make()
    why, _ = await asyncio.gather(why_not(exchange), renewed_meanwhile(exchange, exchanger))

    assert "the caller's own" in why


async def test_token_lives_no_longer_than_the_one_that_was_exchanged_for_it(make, exchanger, clock):
    exchanger.gate, exchanger.said, exchange = anyio.Event(), {"expires_in": 9000}, make(token(expires=100.0))
    await asyncio.gather(sent_by(exchange), renewed_meanwhile(exchange, exchanger))
    clock.now = 101.0

    assert await sent_by(exchange) == "Bearer docs-2"


@pytest.mark.parametrize(
    "issued",
    [
        jwt(iss=ISSUER, aud="docs"),
        jwt(iss=ISSUER, aud=["docs", 7, None]),
        jwt(iss="https://other.example", aud=GATEWAY),
        jwt(iss=ISSUER),
        "opaque",
        "a.!.c",
        "a.W10.c",
        f"a.{base64.urlsafe_b64encode(b'[' * 9000).decode()}.c",
    ],
)
async def test_any_other_token_is_taken_as_it_is(make, exchanger, issued):
    exchanger.said = {"access_token": issued}
    assert await sent_by(make()) == f"Bearer {issued}"


@pytest.mark.parametrize("missing", ["issued_token_type", "token_type", "expires_in"])
async def test_authorization_servers_may_leave_out_what_they_should_say(make, exchanger, missing):
    exchanger.said = {missing: None} if missing == "expires_in" else {}

    async def instead(reply: Reply) -> None:
        issued = {"access_token": "docs", "issued_token_type": f"{TYPES}jwt", "token_type": "bearer", "expires_in": 300}
        del issued[missing]
        await reply.message(issued)

    exchanger.instead = instead
    assert await sent_by(make()) == "Bearer docs"


async def test_redirect_is_not_followed_and_the_token_goes_nowhere_else(make, exchanger):
    async with raw_server(lambda asked, reply: reply.message({"access_token": "evil"})) as other:

        async def instead(reply: Reply) -> None:
            await reply.whole(307, location=f"http://127.0.0.1:{other.port}/token")

        exchanger.instead = instead
        assert "307" in await why_not(make())
        assert other.asked == []


async def test_answer_without_end_is_given_up_at_64_kib(make, exchanger):
    async def instead(reply: Reply) -> None:
        await reply.whole(200, b" " * 70_000, "application/json")

    exchanger.instead = instead
    assert "without a token" in await why_not(make())


async def test_silent_endpoint_is_given_up(make, exchanger, monkeypatch):
    monkeypatch.setattr(token_endpoint, "FETCH_TIME", 0.2)
    exchanger.gate = anyio.Event()
    assert "did not answer within" in await why_not(make())
    exchanger.gate.set()


async def test_refused_exchange_is_not_repeated_at_once(make, exchanger, clock):
    exchanger.status, exchanger.said = 400, {"error": "invalid_grant"}
    exchange = make()
    first = await why_not(exchange)
    assert await why_not(exchange) == first
    assert len(exchanger.forms) == 1
    clock.now = AGAIN
    await why_not(exchange)
    assert len(exchanger.forms) == 2


async def test_server_s_refusal_exchanges_once_more_and_missing_scopes_are_asked_for(make, exchanger, clock):
    exchange = make(scope="read")
    sent = {"authorization": await sent_by(exchange)}
    clock.now = AGAIN
    assert await exchange.refused(401, "Bearer", sent)
    assert await sent_by(exchange) == "Bearer docs-2"
    # A token that was just issued is no better when issued again.
    assert not await exchange.refused(401, "Bearer", {"authorization": "Bearer docs-2"})
    challenge = 'Bearer error="insufficient_scope", scope="write"'
    assert await exchange.refused(403, challenge, {"authorization": "Bearer docs-2"})
    assert exchanger.forms[2]["scope"] == "read write"
    assert not await exchange.refused(403, challenge, {"authorization": "Bearer docs-3"})


async def test_no_token_and_no_secret_is_logged_or_shown(make, exchanger, clock, caplog):
    caplog.set_level("DEBUG")
    exchange = make()
    await sent_by(exchange)
    exchanger.status, clock.now = 400, 3000.0
    exchanger.said = {"error": "invalid_grant", "error_description": "no"}
    await why_not(exchange)
    shown = f"{caplog.text} {vars(exchange)} {token()!r} {ExchangeConfig('a', SECRET)!r}"
    assert "access token for upstream obtained" in caplog.text
    assert SUBJECT not in shown
    assert SECRET not in shown
