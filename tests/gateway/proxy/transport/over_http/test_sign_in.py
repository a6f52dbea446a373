"""Signing a person in to an MCP server: what is asked for, what is kept, and what an attacker does not get."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest

from gateway.config.gateway_config import SignInConfig, UpstreamConfig
from gateway.errors import ConfigError
from gateway.observe.logs import get_logger
from gateway.proxy.transport.http.client import HttpClient, open_http_client
from gateway.proxy.transport.oauth import token_renewal
from gateway.proxy.transport.oauth.code_flow import Client, CodeFlow, NotOurs
from gateway.proxy.transport.oauth.discovery import fetcher_for
from gateway.proxy.transport.oauth.grants import OPERATOR, Grant, GrantKey, GrantStore
from gateway.proxy.transport.oauth.sign_in import begin_sign_in, finish_sign_in, revoke
from gateway.proxy.transport.oauth.token_renewal import SignedIn
from gateway.proxy.transport.transport_interface import NoAnswer
from tests.cases import each_of

from .raw_server import Asked, RawServer, Reply, raw_server
from .standin_authorization import METADATA, PROTECTED, StandInAuthorization, body_of, standin_authorization

pytestmark = pytest.mark.anyio
REDIRECT = "http://127.0.0.1:7777/callback"


@pytest.fixture
async def standin() -> AsyncGenerator[StandInAuthorization]:
    async with standin_authorization() as made:
        yield made


@pytest.fixture
async def client() -> AsyncGenerator[HttpClient]:
    async with open_http_client() as client:
        yield client


@pytest.fixture
def store(tmp_path: Path) -> GrantStore:
    return GrantStore(tmp_path / "sign-ins")


def upstream(url: str, **auth: Any) -> UpstreamConfig:
    return UpstreamConfig("web", url=url, auth=SignInConfig(**auth))


def key_of(config: UpstreamConfig) -> GrantKey:
    return GrantKey(OPERATOR, config.name, config.url or "")


def signed_in_to(config: UpstreamConfig, client: HttpClient, store: GrantStore) -> SignedIn:
    return SignedIn(config, OPERATOR, fetcher_for(config, client), store, get_logger("test"))


async def sign_in(
    standin: StandInAuthorization, config: UpstreamConfig, client: HttpClient, store: GrantStore, **redirect: str
) -> Grant:
    """`redirect`: fields of the redirect that are other than usual."""
    flow = await begin_sign_in(config, client, REDIRECT, store.read(key_of(config)))
    code = flow.read_redirect(standin.approve(flow.address(), **redirect))
    grant = await finish_sign_in(flow, fetcher_for(config, client), code)
    store.write(key_of(config), grant)
    return grant


async def ask(standin: StandInAuthorization, client: HttpClient, authorizer: SignedIn) -> int:
    """Send a request as the channel does; return the status."""
    sent = await authorizer.headers()
    status, header = await _post(standin, client, sent.get("authorization", ""))
    if status in (401, 403) and await authorizer.refused(status, header, sent):
        status, _ = await _post(standin, client, (await authorizer.headers()).get("authorization", ""))
    return status


async def _post(standin: StandInAuthorization, client: HttpClient, authorization: str) -> tuple[int, str]:
    from gateway.config.address import read_url
    from gateway.http1.connection import header_lines

    address = read_url(standin.url)
    connection = await client.take(address.origin)
    try:
        headers = {"host": address.origin.authority, "authorization": authorization}
        connection.send("POST", address.path, header_lines(headers), b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        await connection.head()
        await connection.read(65536)
        return connection.status, connection.header("www-authenticate")
    finally:
        client.give(connection)


async def test_person_signs_in_and_every_call_carries_the_token(standin, client, store, opened):
    config = UpstreamConfig("web", url=standin.url)
    flow = await begin_sign_in(config, client, REDIRECT)
    asked = parse_qs(urlsplit(flow.address()).query)
    grant = await finish_sign_in(flow, fetcher_for(config, client), flow.read_redirect(standin.approve(flow.address())))
    store.write(key_of(config), grant)

    assert asked["resource"] == [standin.url]
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == [REDIRECT]
    assert asked["scope"] == ["read offline_access"]
    assert asked["prompt"] == ["consent"]
    assert standin.forms[0]["resource"] == standin.url
    (registration,) = map(body_of, standin.targets("/register"))
    assert registration == {
        "client_name": "codec-gateway",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }
    async with opened(standin.url, client=client, store=store) as transport:
        assert await transport.request("tools/call", {"name": "x"}) == {"as": grant.access}


async def test_server_that_publishes_nothing_is_its_own_authorization_server(standin, client, store):
    standin.protected = None
    grant = await sign_in(standin, upstream(standin.url), client, store)

    assert grant.issuer == standin.origin


@pytest.mark.parametrize(
    ("auth", "metadata", "client_id", "registrations"),
    [
        ({}, {}, "client-0", 1),
        ({"client_id": "me", "issuer": "{origin}"}, {}, "me", 0),
        ({"client_metadata_url": "https://me.example/c"}, {}, "client-0", 1),
        (
            {"client_metadata_url": "https://me.example/c"},
            {"client_id_metadata_document_supported": True},
            "https://me.example/c",
            0,
        ),
    ],
    ids=["dynamic", "registered before", "no documents", "document"],
)
async def test_client_is_the_best_that_both_sides_can(standin, client, store, auth, metadata, client_id, registrations):
    standin.metadata = metadata
    auth = {key: value.format(origin=standin.origin) for key, value in auth.items()}
    grant = await sign_in(standin, upstream(standin.url, **auth), client, store)

    assert grant.client.id == client_id
    assert len(standin.targets("/register")) == registrations


@pytest.mark.parametrize(
    ("status", "scope"), [(401, "special"), (403, "special"), (200, "read"), (400, "read"), (500, "read")]
)
async def test_scope_is_that_for_which_the_server_refuses_a_request(standin, client, status, scope):
    async def answer(asked: Asked, reply: Reply) -> bool:
        if asked.target == "/mcp":
            await reply.whole(status, www_authenticate='Bearer scope="special"')
        return asked.target == "/mcp"

    standin.before = answer
    flow = await begin_sign_in(upstream(standin.url), client, REDIRECT)

    assert flow.scope == f"{scope} offline_access"


async def test_server_that_registers_nobody_says_what_to_set(standin, client):
    standin.metadata = {"registration_endpoint": None}
    with pytest.raises(NoAnswer, match=r"registers no clients.*'http://127\.0\.0\.1:7777/callback'.*`auth\.client_id`"):
        await begin_sign_in(upstream(standin.url), client, REDIRECT)


async def test_second_sign_in_registers_nobody_and_asks_for_what_was_granted_and_what_was_missing(
    standin, client, store
):
    config = upstream(standin.url)
    await sign_in(standin, config, client, store)
    authorizer = signed_in_to(config, client, store)
    standin.needed = "write"
    for _ in range(2):
        with pytest.raises(NoAnswer, match=r"lacks scopes that it asks for: run `codec-gateway login web`"):
            await ask(standin, client, authorizer)
    await sign_in(standin, config, client, store)

    assert len(standin.targets("/register")) == 1
    assert set(standin.valid.popitem()[1].split()) == {"read", "write", "offline_access"}


async def test_client_is_registered_again_where_the_redirect_address_or_the_issuer_is_another(standin, client, store):
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    for known, redirect in ((grant, f"{REDIRECT}/2"), (replace(grant, issuer="https://old.example"), REDIRECT)):
        flow = await begin_sign_in(config, client, redirect, known)
        assert flow.client.id != grant.client.id
    ended = grant.ended(client_too=True)
    flow = await begin_sign_in(config, client, REDIRECT, ended)

    assert flow.client.id == "client-3"


@pytest.mark.parametrize(
    ("status", "location", "is_forgotten"),
    [
        *((status, "", True) for status in (400, 401, 404, 410, 422)),
        *((status, "", False) for status in (200, 403, 500)),
        (302, f"{REDIRECT}?error=invalid_client", True),
        (302, f"{REDIRECT}?error=login_required", False),
        (302, "https://as.example/login", False),
        (200, f"{REDIRECT}?error=invalid_client", False),
    ],
)
async def test_client_that_the_authorization_server_does_not_know_any_more_is_registered_again(
    standin, client, store, status, location, is_forgotten
):
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)

    async def answer(asked: Asked, reply: Reply) -> bool:
        if asked.target.startswith("/authorize?"):
            await reply.whole(status, **({"location": location} if location else {}))
        return asked.target.startswith("/authorize?")

    standin.before = answer
    flow = await begin_sign_in(config, client, REDIRECT, grant)

    assert flow.client.id == ("client-1" if is_forgotten else "client-0")


# What must not be believed, and where nothing is sent.


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"code_challenge_methods_supported": None}, "does not say that it checks code challenges"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not say that it checks code challenges"),
        ({"issuer": "https://other.example"}, "names another issuer"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not an http"),
        ({"authorization_endpoint": "file:///etc/passwd"}, "not an http"),
        ({"authorization_endpoint": "http://other.example/a"}, "unencrypted"),
        ({"token_endpoint": "http://other.example/t"}, "unencrypted"),
        ({"registration_endpoint": "https://127.0.0.1:1/r"}, "private address 127.0.0.1"),
    ],
)
async def test_authorization_server_that_can_not_be_trusted_is_not_used(standin, client, metadata, words):
    standin.metadata = metadata
    with pytest.raises(NoAnswer, match=words):
        await begin_sign_in(upstream(standin.url), client, REDIRECT)

    assert standin.forms == []


async def test_server_can_not_lead_the_gateway_into_its_own_network(standin, client):
    async with raw_server(standin.answer) as inner:
        there = f"http://127.0.0.1:{inner.port}"
        for protected in ({"authorization_servers": [there]}, {"authorization_servers": [f"{there}/as"]}):
            standin.protected = protected
            with pytest.raises(NoAnswer, match="unencrypted"):
                await begin_sign_in(upstream(standin.url), client, REDIRECT)
        standin.protected, standin.metadata = {}, {"token_endpoint": f"https://127.0.0.1:{inner.port}/t"}
        flow = await begin_sign_in(upstream(standin.url), client, REDIRECT)
        with pytest.raises(NoAnswer, match="private address"):
            await finish_sign_in(flow, fetcher_for(upstream(standin.url), client), "code")

    assert inner.asked == []


async def test_metadata_that_redirects_or_never_ends_is_not_followed(standin, client):
    async def redirect(asked: Asked, reply: Reply) -> bool:
        if asked.target == PROTECTED:
            await reply.whole(302, location=f"{standin.origin}/elsewhere")
        return asked.target == PROTECTED

    async def flood(asked: Asked, reply: Reply) -> bool:
        if asked.target != METADATA:
            return False
        await reply.head(200, {"content-type": "application/json", "transfer-encoding": "chunked"})
        try:
            while True:
                await reply.chunk(b" " * 4096)
        except ConnectionError:
            return True

    standin.before = redirect
    await begin_sign_in(upstream(standin.url), client, REDIRECT)
    assert standin.targets("/elsewhere") == []
    standin.before = flood
    with pytest.raises(NoAnswer, match="publishes no metadata"):
        await begin_sign_in(upstream(standin.url), client, REDIRECT)


async def test_server_that_hangs_is_given_up(client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.oauth.sign_in._START_TIME", 0.1)

    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.gone()

    async with raw_server(answer) as server:
        with pytest.raises(NoAnswer, match="did not answer within"):
            await begin_sign_in(upstream(server.url), client, REDIRECT)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"state": "guessed"}, NotOurs, "belongs to no sign-in"),
        ({"state": None}, NotOurs, "belongs to no sign-in"),
        ({"iss": "https://evil.example", "error": "x", "error_description": "evil"}, NoAnswer, "another authoriz"),
        ({"iss": None}, NoAnswer, "does not say which authorization server"),
        ({"error": "access_denied", "error_description": "no\x1b[0m"}, NoAnswer, r"access_denied no\\x1b"),
        ({"code": None}, NoAnswer, "refused the sign-in"),
        ({"code": "x" * 5000}, NoAnswer, "no code that could be used"),
    ],
)
async def test_redirect_that_is_not_the_right_one_gives_no_code(standin, client, changes, error, words):
    flow = await begin_sign_in(upstream(standin.url), client, REDIRECT)
    address = standin.approve(flow.address(), **changes)
    with pytest.raises(error, match=words) as refused:
        flow.read_redirect(address)

    assert "evil" not in str(refused.value)
    assert standin.forms == []


async def test_redirect_with_a_field_twice_is_refused(standin, client):
    flow = await begin_sign_in(upstream(standin.url), client, REDIRECT)
    with pytest.raises(NoAnswer, match="repeats a field"):
        flow.read_redirect(standin.approve(flow.address()) + "&code=mine")


@pytest.mark.parametrize("pasted", ["http://[half", "&".join(f"field{n}=x" for n in range(100))])
async def test_address_that_can_not_be_read_belongs_to_no_sign_in(standin, client, pasted):
    flow = await begin_sign_in(upstream(standin.url), client, REDIRECT)
    with pytest.raises(NotOurs, match="belongs to no sign-in"):
        flow.read_redirect(pasted)


async def test_code_of_another_sign_in_is_useless_and_so_is_one_that_was_used(standin, client):
    config = upstream(standin.url)
    first, second = [await begin_sign_in(config, client, REDIRECT) for _ in range(2)]
    code = first.read_redirect(standin.approve(first.address()))
    with pytest.raises(NoAnswer, match="invalid_grant"):
        await finish_sign_in(second, fetcher_for(config, client), code)
    code = first.read_redirect(standin.approve(first.address()))
    await finish_sign_in(first, fetcher_for(config, client), code)
    with pytest.raises(NoAnswer, match="invalid_grant"):
        await finish_sign_in(first, fetcher_for(config, client), code)


def test_every_sign_in_has_a_state_and_a_verifier_of_its_own(standin_free_flow):
    flows = [standin_free_flow() for _ in range(100)]

    assert len({flow.state for flow in flows} | {flow.verifier for flow in flows}) == 200
    assert all(flow.state not in repr(flow) and flow.verifier not in repr(flow) for flow in flows)


@pytest.fixture
def standin_free_flow() -> Any:
    from gateway.proxy.transport.oauth.code_flow import Client
    from gateway.proxy.transport.oauth.discovery import AuthorizationServer

    server = AuthorizationServer("https://as.example", "https://as.example/t")
    return lambda: CodeFlow(server, Client("me"), REDIRECT, "https://mcp.example", None)


# Tokens that are kept.


async def test_tokens_are_sealed_for_their_owner_and_server_in_files_that_nobody_else_reads(
    standin, client, store, tmp_path
):
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    files = [each for each in store.folder.iterdir() if each.name != "key"]

    assert [each.stat().st_mode & 0o777 for each in store.folder.iterdir()] == [0o600] * (len(files) + 1)
    assert all(str(secret).encode() not in each.read_bytes() for each in files for secret in (grant.access, "client-0"))
    assert GrantStore(store.folder).read(key_of(config)) == grant
    for other in (
        GrantKey("somebody", "web", standin.url),
        GrantKey(OPERATOR, "web", "https://moved.example"),
        GrantKey(OPERATOR, "other", standin.url),
    ):
        assert store.read(other) is None
        store.write(other, grant)
        own, moved = [max(store.folder.glob("sign-in-*"), key=lambda path: path.stat().st_mtime_ns), files[0]]
        own.write_bytes(moved.read_bytes())
        assert store.read(other) is None


async def test_key_that_others_can_read_is_refused_with_the_way_out(standin, client, store):
    config = upstream(standin.url)
    await sign_in(standin, config, client, store)
    (store.folder / "key").chmod(0o644)
    with pytest.raises(NoAnswer, match="chmod 600"):
        await signed_in_to(config, client, GrantStore(store.folder)).headers()


async def test_expired_token_is_renewed_once_for_all_calls_and_processes(standin, client, store):
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    store.write(key_of(config), replace(grant, expires=0.0))
    processes = [signed_in_to(config, client, GrantStore(store.folder)) for _ in range(4)]
    sent = await asyncio.gather(*(each.headers() for each in processes for _ in range(25)))

    (token,) = {headers["authorization"] for headers in sent}
    assert token != f"Bearer {grant.access}"
    assert [form["grant_type"] for form in standin.forms] == ["authorization_code", "refresh_token"]
    assert standin.forms[1]["resource"] == standin.url
    assert "scope" not in standin.forms[1]


async def test_tokens_may_come_with_the_status_created(standin, client, store):
    standin.issued = 201

    grant = await sign_in(standin, upstream(standin.url), client, store)

    assert grant.access


@pytest.mark.parametrize("code", ["invalid_request", "invalid_scope"])
async def test_refresh_names_the_granted_scope_where_it_is_refused_without(standin, client, store, code):
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    store.write(key_of(config), replace(grant, expires=0.0))
    standin.wants_scope = code

    (sent,) = (await signed_in_to(config, client, GrantStore(store.folder)).headers()).values()

    assert sent != f"Bearer {grant.access}"
    assert [form.get("scope") for form in standin.forms[1:]] == [None, grant.scope]


@pytest.mark.parametrize("life", [20, 0.001])
async def test_token_that_ends_soon_is_not_renewed_for_each_call(standin, client, store, life):
    standin.life = life
    config = upstream(standin.url)
    await sign_in(standin, config, client, store)
    processes = [signed_in_to(config, client, GrantStore(store.folder)) for _ in range(2)]
    for each in processes * 3:
        assert await ask(standin, client, each) == 200

    assert len(standin.forms) == 1


async def test_scope_that_can_not_be_kept_is_still_asked_for(standin, client, store, monkeypatch):
    config = upstream(standin.url)
    await sign_in(standin, config, client, store)
    authorizer = signed_in_to(config, client, store)
    await authorizer.headers()
    standin.needed = "write"
    for wrong in (OSError("read-only"), ConfigError("read-only")):
        monkeypatch.setattr(store, "write", Mock(side_effect=wrong))
        with pytest.raises(NoAnswer, match="lacks scopes that it asks for"):
            await ask(standin, client, authorizer)


async def test_token_that_ended_on_its_way_is_renewed_though_it_was_just_issued(standin, client, store):
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    store.write(key_of(config), replace(grant, expires=0.0))
    authorizer = signed_in_to(config, client, store)
    sent = await authorizer.headers()
    # The server was slow, and looked at it when it had ended.
    authorizer._due = 0.0

    assert await authorizer.refused(401, "", sent)
    assert await authorizer.headers() != sent


async def test_token_that_the_server_refuses_is_renewed_and_the_request_sent_again(standin, client, store):
    config = upstream(standin.url)
    await sign_in(standin, config, client, store)
    authorizer = signed_in_to(config, client, store)
    standin.expire()
    statuses = await asyncio.gather(*(ask(standin, client, authorizer) for _ in range(20)))

    assert set(statuses) == {200}
    assert len(standin.forms) == 2


async def test_token_that_is_refused_whenever_it_was_renewed_is_not_renewed_for_ever(standin, client, store):
    config = upstream(standin.url)
    await sign_in(standin, config, client, store)
    authorizer = signed_in_to(config, client, store)
    for _ in range(5):
        standin.expire()
        try:
            await ask(standin, client, authorizer)
        except NoAnswer as error:
            assert "even a token that was just renewed: run `codec-gateway login web`" in str(error)  # noqa: PT017

    assert len(standin.forms) == 2


async def test_sign_in_that_was_revoked_says_what_to_type_and_is_not_tried_again(standin, client, store, caplog):
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    standin.expire()
    standin.refresh_tokens.clear()
    authorizer = signed_in_to(config, client, store)
    for _ in range(3):
        with pytest.raises(NoAnswer, match=r"has ended.*run `codec-gateway login web`"):
            await ask(standin, client, authorizer)

    assert len(standin.forms) == 2
    assert await authorizer.headers() == {}
    assert (await sign_in(standin, config, client, store)).client == grant.client
    assert await ask(standin, client, signed_in_to(config, client, store)) == 200


async def test_renewed_tokens_that_can_not_be_kept_are_used_all_the_same_and_kept_later(
    standin, client, store, monkeypatch, caplog
):
    monkeypatch.setattr(token_renewal, "_AGAIN", 0.0)
    monkeypatch.setattr(token_renewal, "_LOOK", 0.0)
    config = upstream(standin.url)
    await sign_in(standin, config, client, store)
    authorizer = signed_in_to(config, client, store)
    with monkeypatch.context() as full:
        full.setattr(store, "write", Mock(side_effect=ConfigError("x: can't be written (No space left on device)")))
        for _ in range(2):
            standin.expire()
            assert await ask(standin, client, authorizer) == 200
        assert caplog.text.count("can't be kept") == 1
    assert await ask(standin, client, authorizer) == 200
    standin.expire()

    assert await ask(standin, client, signed_in_to(config, client, GrantStore(store.folder))) == 200
    assert len(standin.forms) == 4


async def test_authorization_server_that_is_away_ends_no_sign_in(standin, client, store, monkeypatch):
    monkeypatch.setattr(token_renewal, "_AGAIN", 0.0)
    config = upstream(standin.url)
    await sign_in(standin, config, client, store)
    standin.expire()
    standin.token_status = 503
    authorizer = signed_in_to(config, client, store)
    with pytest.raises(NoAnswer, match="can't be renewed: its authorization server answered HTTP 503"):
        await ask(standin, client, authorizer)
    standin.token_status = 200

    assert await ask(standin, client, authorizer) == 200


async def test_caller_that_leaves_during_a_renewal_loses_nobody_the_new_token(standin, client, store):
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    store.write(key_of(config), replace(grant, expires=0.0))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def hold(asking: Asked, reply: Reply) -> bool:
        if asking.target == "/token":
            asked.set()
            await go_on.wait()
        return False

    standin.before = hold
    authorizer = signed_in_to(config, client, store)
    leaving = asyncio.ensure_future(authorizer.headers())
    with anyio.fail_after(20):
        await asked.wait()
        leaving.cancel()
        go_on.set()
        sent = await authorizer.headers()

    assert sent["authorization"] != f"Bearer {grant.access}"
    assert len(standin.forms) == 2


async def test_sign_in_and_sign_out_are_noticed_by_a_running_gateway(standin, client, store, monkeypatch):
    monkeypatch.setattr(token_renewal, "_LOOK", 0.0)
    config = upstream(standin.url)
    authorizer = signed_in_to(config, client, store)
    with pytest.raises(NoAnswer, match=r"nobody has signed in to it: run `codec-gateway login web`"):
        await ask(standin, client, authorizer)
    grant = await sign_in(standin, config, client, store)
    assert await ask(standin, client, authorizer) == 200
    assert await revoke(grant, fetcher_for(config, client))
    store.delete(key_of(config))

    assert await authorizer.headers() == {}
    assert standin.refresh_tokens == {}


@each_of(
    ("changes", "form"),
    [
        ({}, {"token": "r", "token_type_hint": "refresh_token", "client_id": "me"}),
        ({"refresh": None}, {"token": "a", "token_type_hint": "access_token", "client_id": "me"}),
        ({"refresh": None, "access": None}, None),
        ({"revocation_endpoint": None}, None),
    ],
)
@each_of("status", [200, 503])
async def test_sign_in_is_ended_at_the_authorization_server_where_it_takes_that(changes, form, status):
    sent: list[object] = []

    class Endpoint:
        async def post_form(self, url: str, form: object, headers: object) -> tuple[int, dict[str, Any]]:
            assert url == "https://as.example/revoke"
            sent.append(form)
            return status, {}

    known = Grant("https://as.example", "", "https://as.example/revoke", Client("me"), "", None, "a", "r")
    is_ended = await revoke(replace(known, **changes), cast("Any", Endpoint()))

    assert is_ended is (form is not None and status == 200)
    assert sent == ([] if form is None else [form])


async def test_server_that_wants_other_credentials_is_not_told_to_be_signed_in_to(standin, client, store):
    authorizer = signed_in_to(UpstreamConfig("web", url=standin.url), client, store)

    assert not await authorizer.refused(401, 'Basic realm="x"', {})
    with pytest.raises(NoAnswer, match="nobody has signed in"):
        await authorizer.refused(401, f'Bearer resource_metadata="{standin.url}"', {})


async def test_tokens_of_another_issuer_than_the_configured_one_are_not_sent(standin, client, store):
    await sign_in(standin, upstream(standin.url), client, store)
    authorizer = signed_in_to(upstream(standin.url, issuer="https://other.example"), client, store)

    assert await authorizer.headers() == {}


async def test_nothing_secret_is_logged_or_said(standin, client, store, caplog):
    caplog.set_level("DEBUG")
    config = upstream(standin.url)
    flow = await begin_sign_in(config, client, REDIRECT)
    code = flow.read_redirect(standin.approve(flow.address()))
    grant = await finish_sign_in(flow, fetcher_for(config, client), code)
    store.write(key_of(config), grant)
    standin.expire()
    authorizer = signed_in_to(config, client, store)
    await ask(standin, client, authorizer)
    standin.expire()
    standin.refresh_tokens.clear()
    said = ""
    try:
        await ask(standin, client, authorizer)
    except NoAnswer as error:
        said = str(error)
    shown = caplog.text + said + repr(grant) + repr(flow)

    renewed = store.read(key_of(config))
    assert renewed is not None
    for secret in (grant.access, grant.refresh, renewed.access, renewed.refresh, code, flow.verifier, flow.state):
        assert secret is not None
        assert secret not in shown


async def test_no_token_goes_to_another_server_than_its_own(standin, client, store, opened):
    await sign_in(standin, UpstreamConfig("web", url=standin.url), client, store)
    heard: list[Asked] = []

    async def listen(asked: Asked, reply: Reply) -> None:
        heard.append(asked)
        await reply.result(asked, {})

    async def redirect(asked: Asked, reply: Reply) -> bool:
        if asked.target == "/mcp":
            await reply.whole(307, location=other.url)
        return asked.target == "/mcp"

    async with raw_server(listen) as other:
        standin.before = redirect
        async with opened(standin.url, client=client, store=store) as transport:
            with pytest.raises(NoAnswer, match="redirects to"):
                await transport.request("tools/call", {"name": "x"})
        async with opened(other.url, client=client) as transport:
            await transport.request("tools/call", {"name": "x"})

    assert isinstance(other, RawServer)
    assert ["authorization" in each.headers for each in heard] == [False]
