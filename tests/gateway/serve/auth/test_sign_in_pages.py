"""The pages at which users sign in to servers: who is let in, whose sign-in it becomes, what other pages can't do."""

import re
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html import unescape

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from gateway.app.process import guard_endpoints
from gateway.config.gateway_config import GatewayConfig, ServeConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.transport.oauth.grants import GrantKey, GrantStore
from gateway.proxy.transport.oauth.user_sign_ins import UserSignIns
from gateway.serve.auth.api_keys import KeyFile, KeyRecord, digest_of
from gateway.serve.auth.sign_in_pages import SignInPages
from tests.gateway.proxy.standin_accounts import standin_accounts

pytestmark = pytest.mark.anyio
ORIGIN = "http://127.0.0.1:8600"
TOKEN = "operator-token-of-more-than-32-characters"
KEYS = {"ann": "codec_ann" + "a" * 40, "bob": "codec_bob" + "b" * 40}


@pytest.fixture
async def accounts(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with standin_accounts() as made:
        yield made


@pytest.fixture
def file(tmp_path):
    file = KeyFile(tmp_path / "keys.toml")
    for name, key in KEYS.items():
        file.add(KeyRecord(name, digest_of(key), datetime.now(UTC), servers=("docs",) if name == "ann" else None))
    return file


@pytest.fixture
def app(accounts, file):
    """The guards of a gateway with one server at which each user signs in. `signed` takes who did."""

    def make(config=None, signed=None, **serve):
        upstreams = (config or accounts.config(), replace(accounts.config("shared"), auth=None))
        settings = GatewayConfig(upstreams=upstreams, serve=ServeConfig(**{"keys": file.path, "token": TOKEN, **serve}))
        pages = partial(
            SignInPages,
            sign_ins=UserSignIns(),
            servers=lambda: settings.upstreams,
            signed_in=lambda *who: signed.append(who) if signed is not None else None,
            hosts=(),
        )
        return guard_endpoints(PlainTextResponse("else"), settings, Metrics().access, None, pages)

    return make


@asynccontextmanager
async def browser(app, origin=ORIGIN):
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=origin, headers={"origin": origin}) as made:
        yield made


async def show_key(http, key, server="docs", **headers):
    return await http.post("/sign-in", params={"server": server}, data={"key": key}, headers=headers)


def address_in(page):
    (found,) = re.findall(r"href='([^']+)'", page.text)
    return unescape(found)


def came_back(accounts, address, person):
    accounts.person = person
    return accounts.approve(address)


async def test_user_signs_in_by_the_page_and_it_is_exactly_theirs(accounts, app, file):
    signed = []
    async with browser(app(signed=signed)) as http:
        form = await http.get("/sign-in", params={"server": "docs"})
        page = await show_key(http, KEYS["ann"])
        end = await http.get(came_back(accounts, address_in(page), "ann"))
        again = await http.get(end.url)

    assert "name='key'" in form.text
    assert (page.status_code, end.status_code, again.status_code) == (200, 200, 400)
    assert "You are ann at this gateway" in page.text
    assert "Signed in to docs" in end.text
    owner = file.read()["ann"].owner
    assert signed == [("docs", owner)]
    assert GrantStore().read(GrantKey(owner, "docs", accounts.url)).access in accounts.whose
    assert KEYS["ann"] not in page.text + end.text + str(page.headers)


async def test_pages_run_nothing_load_nothing_and_are_not_kept(accounts, app):
    async with browser(app()) as http:
        pages = [await http.get("/sign-in"), await show_key(http, KEYS["ann"]), await show_key(http, "no")]

    for page in pages:
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "same-origin"
        assert page.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert re.findall(r"<script|<img|<link|\son\w+=", page.text) == []


async def test_key_of_nobody_is_refused_and_guessing_is_slowed_down(app):
    async with browser(app()) as http:
        answers = [(await show_key(http, f"guess {number}")).status_code for number in range(40)]
        good = await show_key(http, KEYS["ann"])

    assert answers[0] == 401
    assert answers[-1] == 429
    assert good.status_code == 200


async def test_sign_ins_count_as_requests_of_the_key(accounts, app, file):
    key = "codec_eve" + "e" * 40
    file.add(KeyRecord("eve", digest_of(key), datetime.now(UTC), rate=1))
    async with browser(app()) as http:
        pages = [await show_key(http, key)]
        asked = len(accounts.server.asked)
        pages += [await show_key(http, key) for _ in range(2)]
        assert len(accounts.server.asked) == asked
        other = await show_key(http, KEYS["ann"])

    assert [page.status_code for page in (*pages, other)] == [200, 429, 429, 200]
    assert "too many requests came from you" in pages[-1].text


async def test_form_has_room_for_an_access_token_and_not_for_much_more(app):
    async with browser(app()) as http:
        pages = [await show_key(http, "x" * length) for length in (16 * 1024, 65 * 1024)]

    assert [page.status_code for page in pages] == [401, 400]


async def test_sign_in_takes_no_place_of_a_request_once_it_is_over(app, file):
    key = "codec_eve" + "e" * 40
    file.add(KeyRecord("eve", digest_of(key), datetime.now(UTC), concurrency=1))
    async with browser(app()) as http:
        pages = [await show_key(http, key) for _ in range(3)]
        call = await http.post("/v1/models", headers={"authorization": f"Bearer {key}"})

    assert [page.status_code for page in (*pages, call)] == [200] * 4


async def test_operators_token_signs_nobody_in(accounts, app):
    async with browser(app()) as http:
        page = await show_key(http, TOKEN)

    assert "codec-gateway login docs" in page.text
    assert "set-cookie" not in page.headers
    assert accounts.methods == []


async def test_gateway_that_asks_for_no_key_says_whose_sign_in_is_used(app):
    async with browser(app(keys=None, token=None)) as http:
        assert "codec-gateway login docs" in (await show_key(http, "any")).text


@pytest.mark.parametrize("server", ["shared", "other", "", "<b>"])
async def test_server_at_which_users_do_not_sign_in_is_not_found(app, server):
    async with browser(app()) as http:
        page = await show_key(http, KEYS["bob"], server)

    assert page.status_code == 404
    assert "<b>" not in page.text


async def test_server_that_the_key_may_not_use_is_not_found(accounts, app):
    async with browser(app(accounts.config("hidden"))) as http:
        assert (await show_key(http, KEYS["ann"], "hidden")).status_code == 404
        assert (await show_key(http, KEYS["bob"], "hidden")).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["null", "http://127.0.0.1:9999", "https://127.0.0.1:8600", "http://localhost:8600", "https://page.example"],
)
async def test_form_that_another_page_sends_begins_nothing(accounts, app, origin):
    async with browser(app(cors_origins=("https://page.example",))) as http:
        page = await show_key(http, KEYS["ann"], origin=origin)

    assert page.status_code == 403
    assert "set-cookie" not in page.headers
    assert accounts.methods == []


async def test_form_without_an_origin_begins_nothing(app):
    async with browser(app()) as http:
        del http.headers["origin"]
        assert (await show_key(http, KEYS["ann"])).status_code == 403


async def test_key_in_the_address_is_not_read(app):
    async with browser(app()) as http:
        page = await http.get("/sign-in", params={"server": "docs", "key": KEYS["ann"]})

    assert "name='key'" in page.text
    assert KEYS["ann"] not in page.text


async def test_page_under_a_foreign_name_is_not_served(app):
    async with browser(app(), "http://rebound.example:8600") as http:
        for path in ("/sign-in", "/sign-in/callback?state=x"):
            assert (await http.get(path)).status_code == 421


async def test_address_that_one_user_sends_to_another_signs_in_nobody(accounts, app, file):
    """Bob begins, and has Ann's browser finish: hers has no cookie of Bob's, so Bob does not get her account."""
    served = app()
    async with browser(served) as bob, browser(served) as ann:
        address = address_in(await show_key(bob, KEYS["bob"]))
        end = came_back(accounts, address, "ann")
        await show_key(ann, KEYS["ann"])
        stolen = await ann.get(end)

        assert stolen.status_code == 400
        assert "belongs to no sign-in" in stolen.text
        assert accounts.forms == []
        for name in KEYS:
            assert GrantStore().read(GrantKey(file.read()[name].owner, "docs", accounts.url)) is None


async def test_two_sign_ins_of_one_browser_go_on_side_by_side(accounts, app):
    async with browser(app()) as http:
        addresses = [address_in(await show_key(http, KEYS["ann"])) for _ in range(2)]
        ends = [await http.get(came_back(accounts, address, "ann")) for address in addresses]

    assert [each.status_code for each in ends] == [200, 200]


async def test_cookie_is_bound_to_this_very_host_over_https(accounts, app):
    config = accounts.config()
    secure = replace(config, auth=replace(config.auth, redirect_url="https://gateway.example/sign-in/callback"))
    async with browser(app(secure), "https://gateway.example") as http:
        page = await show_key(http, KEYS["ann"])

    cookie = page.headers["set-cookie"]
    assert cookie.startswith("__Host-codec-sign-in-")
    assert all(part in cookie for part in ("; Path=/;", "; HttpOnly;", "; SameSite=Lax;", "; Secure"))


async def test_refusal_of_the_authorization_server_is_shown_as_text(accounts, app):
    async with browser(app()) as http:
        address = address_in(await show_key(http, KEYS["ann"]))
        end = accounts.approve(address, code=None, error="access_denied", error_description="<b>no</b>")
        page = await http.get(end)

    assert page.status_code == 400
    assert "access_denied" in page.text
    assert "<b>no" not in page.text


async def test_authorization_server_that_is_away_is_said(accounts, app):
    accounts.metadata = None
    async with browser(app()) as http:
        page = await show_key(http, KEYS["ann"])

    assert page.status_code == 502
    assert "publishes no metadata" in page.text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"key=" + b"x" * 100_000, "application/x-www-form-urlencoded"),
        (b"&".join(b"a=1" for _ in range(100)), "application/x-www-form-urlencoded"),
        (b"\xff\xfe", "application/x-www-form-urlencoded"),
        (b'{"key": "x"}', "application/json"),
    ],
)
async def test_form_that_is_none_is_refused(app, body, kind):
    async with browser(app()) as http:
        page = await http.post("/sign-in", params={"server": "docs"}, content=body, headers={"content-type": kind})

    assert page.status_code == 400


async def test_other_methods_and_paths_are_not_the_pages(app):
    async with browser(app()) as http:
        assert (await http.put("/sign-in")).status_code == 405
        assert (await http.post("/sign-in/callback")).status_code == 405
        assert (await http.get("/sign-in/other")).status_code == 401
