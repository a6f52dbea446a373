"""Servers that get tokens in exchange for callers' own: whose token is used, what each sees, and who is refused."""

import asyncio
from dataclasses import replace
from functools import partial

import anyio
import pytest

from gateway.config.gateway_config import ClientCredentials
from gateway.errors import RpcError
from gateway.proxy import connector, per_user
from gateway.proxy.caller import ANYBODY, CallerToken, Nobody, Principal
from gateway.proxy.transport.oauth.token_endpoint import TokenExchange

from .standin_accounts import standin_exchange

pytestmark = pytest.mark.anyio


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(connector, "TokenExchange", partial(TokenExchange, clock=made, now=made))
    return made


def holder(person, number=1, rights="", until=4000.0):
    """Somebody with an access token."""
    token = CallerToken(rights or person, until, ("https://login.example", "gateway"), f"{person} {number}")
    return Principal(f"oauth:{person}", owner=f"oauth:issuer {person}", token=token)


@pytest.fixture
async def accounts(tmp_path, monkeypatch, clock):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with standin_exchange() as made:
        yield made
        assert made.mixed == []


async def call(proxy, principal, word=""):
    params = {"name": "docs__who", "arguments": {"word": word}}
    with anyio.fail_after(30):
        outcome = await proxy.call_tool(params, Nobody(modern=False, principal=principal))
    return outcome.result["content"][0]["text"]


async def names(proxy, principal, kind="tools"):
    with anyio.fail_after(30):
        answer = await proxy.handle(f"{kind}/list", {}, Nobody(modern=False, principal=principal))
    return [each.get("uri", each["name"]) for each in answer[kind]]


async def test_two_users_are_themselves_in_a_thousand_interleaved_calls_with_two_exchanges(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        room = anyio.CapacityLimiter(100)

        async def ask(number, person):
            async with room:
                return await call(proxy, holder(person), str(number))

        who = ["ann", "bob"] * 500
        answers = await asyncio.gather(*(ask(i, person) for i, person in enumerate(who)))

    assert answers == [f"{person} {i}" for i, person in enumerate(who)]
    assert sorted(accounts.exchanged) == ["ann 1", "bob 1"]
    assert sorted(accounts.sessions.values()) == ["ann", "bob"]


async def test_no_server_ever_gets_a_caller_s_own_token(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        await call(proxy, holder("ann"))
        await names(proxy, holder("ann"), "resources")
    sent = [f"{each.headers} {each.body!r}" for each in accounts.server.asked if each.target != "/token"]
    assert not any("ann 1" in each for each in sent)


@pytest.mark.parametrize("principal", [Principal("ann", owner="key:a"), Principal("stray")])
async def test_caller_without_an_access_token_is_told_why_and_nothing_is_sent(accounts, proxy_of, principal):
    async with proxy_of(accounts.config()) as proxy:
        await call(proxy, holder("ann"))
        before = len(accounts.server.asked)
        answer = await call(proxy, principal)
        assert "only callers with an access token" in answer
        assert "sign in with OAuth instead" in answer
        assert len(accounts.server.asked) == before


async def test_tokens_of_nobody_are_nobody_s(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        await call(proxy, replace(holder("ann"), owner=""))
        assert accounts.exchanged == []
        assert "tools/call" not in accounts.methods


async def test_reload_tells_whether_callers_tokens_are_needed(accounts, proxy_of):
    async with proxy_of() as proxy:
        assert not proxy.exchanges_tokens
        await proxy.reload(replace(proxy.config, upstreams=(accounts.config(),)))
        assert proxy.exchanges_tokens
        assert await call(proxy, holder("ann")) == "ann "
        await proxy.reload(replace(proxy.config, upstreams=()))
        assert not proxy.exchanges_tokens


async def test_operator_is_told_that_only_those_without_a_token_need_its_sign_in(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        answer = await call(proxy, ANYBODY)
        assert "callers with access tokens need not; for the others run `codec-gateway login docs`" in answer


async def test_renewed_token_goes_on_in_the_same_session(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        await call(proxy, holder("ann", 1))
        await call(proxy, holder("ann", 2, until=9000.0))
    assert accounts.exchanged == ["ann 1"]
    assert len(accounts.sessions) == 1


async def test_fresh_token_is_exchanged_when_one_is_needed_again(accounts, proxy_of, clock):
    accounts.life = 300.0
    async with proxy_of(accounts.config()) as proxy:
        await call(proxy, holder("ann", 1))
        clock.now += 290.0
        assert await call(proxy, holder("ann", 2, until=9000.0)) == "ann "
    assert accounts.exchanged == ["ann 1", "ann 2"]
    assert len(accounts.sessions) == 1


async def test_token_of_the_same_user_with_other_rights_has_its_own_session_and_exchange(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        await call(proxy, holder("ann", 1, "may read"))
        await call(proxy, holder("ann", 2, "may write"))
        await call(proxy, holder("ann", 1, "may read"))
    assert accounts.exchanged == ["ann 1", "ann 2"]
    assert len(accounts.sessions) == 2


async def test_two_users_whose_tokens_say_the_same_are_still_two(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        assert [await call(proxy, holder(each, 1, "same")) for each in ("ann", "bob")] == ["ann ", "bob "]
    assert accounts.exchanged == ["ann 1", "bob 1"]


async def test_resources_are_read_with_one_s_own_token_or_not_at_all(accounts, proxy_of):
    accounts.open_lists = True
    async with proxy_of(accounts.config()) as proxy:
        ann, key = (Nobody(modern=False, principal=each) for each in (holder("ann"), Principal("key", owner="key:a")))
        await names(proxy, holder("ann"), "resources")
        answer = await proxy.handle("resources/read", {"uri": "note:///ann"}, ann)
        assert answer["contents"][0]["text"] == "read by ann"
        before = len(accounts.server.asked)
        with pytest.raises(RpcError, match="only callers with an access token"):
            await proxy.handle("resources/read", {"uri": "note:///nobody"}, key)
        assert len(accounts.server.asked) == before


async def test_lists_are_each_user_s_own_and_others_see_what_the_server_shows_everybody(accounts, proxy_of):
    accounts.open_lists = True
    async with proxy_of(accounts.config()) as proxy:
        people = [holder("ann"), holder("bob"), Principal("key", owner="key:a"), ANYBODY]
        seen = [await names(proxy, each) for each in people]
    common = ["docs__who", "docs__of_nobody"]
    assert seen == [["docs__who", "docs__of_ann"], ["docs__who", "docs__of_bob"], common, common]


async def test_refused_exchange_is_an_error_with_its_reason_and_a_fresh_token_goes_through(accounts, proxy_of):
    accounts.refusal = {"error": "invalid_grant", "error_description": "Session not active"}
    async with proxy_of(accounts.config()) as proxy:
        answer = await call(proxy, holder("ann", 1))
        assert "Session not active" in answer
        assert "get a fresh one (sign in again in your client)" in answer
        assert await names(proxy, holder("bob")) == []

        accounts.refusal = None
        assert await call(proxy, holder("ann", 2, until=9000.0), "now") == "ann now"


async def test_expired_token_is_an_error_and_is_not_sent_to_be_exchanged(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        late = holder("ann", until=999.0)
        assert "access token has expired: call again with a fresh one" in await call(proxy, late)
        assert await call(proxy, holder("ann", 2)) == "ann "
    assert accounts.exchanged == ["ann 2"]


async def test_connection_ends_with_the_permission(accounts, proxy_of, clock, monkeypatch):
    ended = anyio.Event()
    drop = per_user.PerUser._drop

    def note(self, key, user):
        drop(self, key, user)
        ended.set()

    monkeypatch.setattr(per_user, "_SWEEP", 0.01)
    monkeypatch.setattr(per_user.PerUser, "_drop", note)
    async with proxy_of(accounts.config()) as proxy:
        await call(proxy, holder("ann", until=1500.0))
        clock.now = 1500.0
        # What runs may go on; the next request that needs a token finds that there is none.
        assert "has expired: call again with a fresh one" in await call(proxy, holder("ann", until=1500.0))
        with anyio.fail_after(20):
            await ended.wait()
        assert await call(proxy, holder("ann", 2)) == "ann "
    assert accounts.exchanged == ["ann 1", "ann 2"]


async def test_operator_uses_the_gateway_s_own_credentials_and_nobody_else_does(accounts, proxy_of):
    own = ClientCredentials("gateway", "gateway-secret", token_url=f"{accounts.origin}/own")

    async def give(asked, reply):
        if asked.target != "/own":
            return False
        accounts.valid["own"], accounts.whose["own"] = "read", "gateway"
        await reply.message({"access_token": "own", "token_type": "Bearer", "expires_in": 300})
        return True

    accounts.before = give
    async with proxy_of(replace(accounts.config(), oauth=own)) as proxy:
        assert await call(proxy, ANYBODY) == "gateway "
        assert await call(proxy, holder("ann")) == "ann "
        assert "only callers with an access token" in await call(proxy, Principal("key", owner="key:a"))
        assert await names(proxy, Principal("key", owner="key:a")) == ["docs__who", "docs__of_gateway"]


async def test_tokens_of_one_user_leave_places_for_the_others(accounts, proxy_of, monkeypatch):
    async with proxy_of(accounts.config(client_sessions=8)) as proxy:
        for rights in "abc":
            # The oldest one is idle, so it makes room.
            assert await call(proxy, holder("ann", rights=rights)) == "ann "
        assert accounts.exchanged == ["ann 1"] * 3
        monkeypatch.setattr(per_user._User, "is_idle", property(lambda _: False))
        for rights in "de":
            assert "all 2 that one caller may have (limits.principal_share)" in await call(
                proxy, holder("ann", rights=rights)
            )
        for person in ("bob", "eve"):
            assert await call(proxy, holder(person)) == f"{person} "


async def test_number_of_users_is_bounded_and_the_error_says_so(accounts, proxy_of):
    async with proxy_of(accounts.config(client_sessions=1)) as proxy:
        running = proxy.config.upstreams[0]
        assert running.most_client_sessions == 1
        await call(proxy, holder("ann"))
        # Ann's is idle, so it makes room.
        assert await call(proxy, holder("bob")) == "bob "
