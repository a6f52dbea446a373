"""The sessions besides a server's main one: who gets which, how many there may be, and what ends them."""

import asyncio
from types import SimpleNamespace

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import UpstreamUnavailable, rpc_error
from gateway.proxy.caller import Nobody, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer
from gateway.proxy.upstream.session.negotiation import NoCommonEra, Terms
from gateway.proxy.upstream.supervision import session_pool as module
from gateway.proxy.upstream.supervision.session_pool import Pool
from tests.gateway.proxy.transport.kept_log import settled
from tests.gateway.proxy.upstream.supervision.standin_session import Opener

pytestmark = pytest.mark.anyio
CONFIG = UpstreamConfig("up", command="c", client_sessions=2)
ROOTS = Terms(("handshake",), {"roots": {}})
PLAIN = Terms(("handshake",), {})


class Client:
    """A client of the handshake era."""

    def __init__(self, name="ann", *, alone=True):
        self.principal = Principal(name, alone=alone)
        self.times_heard, self.idle_since = 0, None


def caller(name="ann", *, alone=True):
    return Nobody(modern=True, principal=Principal(name, alone=alone))


@pytest.fixture
async def opener():
    return Opener()


@pytest.fixture
async def pool_of(opener):
    """Makes the pool, whose tasks end with the test."""
    async with anyio.create_task_group() as tasks:

        def make(config=CONFIG, rule=None):
            return Pool(config, opener, tasks, rule or ShareRule())

        make.tasks = tasks
        yield make
        opener.may_open.set()
        opener.may_end.set()
        tasks.cancel_scope.cancel()


@pytest.fixture
async def pool(pool_of):
    return pool_of()


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(time=1000.0)
    monkeypatch.setattr(module, "monotonic", lambda: now.time)
    return now


class TestOwn:
    async def test_client_has_one_session_that_is_opened_once_for_all_its_requests(self, pool, opener):
        ann, bob = Client(), Client("bob")
        opener.may_open.clear()
        asking = [asyncio.create_task(pool.own(each, ROOTS)) for each in (ann, ann, bob)]
        await settled()
        before = (len(pool), pool.find(ann))
        opener.may_open.set()
        first, same, other = [await each for each in asking]

        assert before == (0, None)
        assert first is same is await pool.own(ann, ROOTS) is pool.find(ann)
        assert other is not first
        assert opener.asked == [(ROOTS, ann, None), (ROOTS, bob, None)]
        assert (len(pool), set(pool.members())) == (2, {first, other})
        assert pool.find(Client()) is None

    @pytest.mark.parametrize("how", ["its connection", "its leave"])
    async def test_session_that_is_over_is_opened_again(self, pool, opener, how):
        ann = Client()
        first = await pool.own(ann, ROOTS)
        (first.session.transport.closed if how == "its connection" else first.leave).set()
        again = await pool.own(ann, ROOTS)
        await settled()

        assert again is not first
        assert pool.find(ann) is again
        assert opener.ended == [first]
        assert len(pool) == 1

    async def test_session_ends_with_its_client_even_while_it_is_being_opened(self, pool, opener):
        ann, bob = Client(), Client("bob")
        first = await pool.own(ann, ROOTS)
        opener.may_open.clear()
        opening = asyncio.create_task(pool.own(bob, ROOTS))
        await settled()
        pool.release(ann)
        pool.release(bob)
        pool.release(bob)
        opener.may_open.set()
        second = await opening
        await settled()

        assert opener.ended == [first, second]
        assert (pool.find(ann), pool.find(bob), len(pool), pool.members()) == (None, None, 0, [])

    @pytest.mark.parametrize(
        ("failure", "kind", "words"),
        [
            (LinkLost("it broke"), UpstreamUnavailable, "no session with server 'up' is available: it broke"),
            (KeyError("x"), UpstreamUnavailable, "no session with server 'up' is available: KeyError: 'x'"),
            (
                NoCommonEra("it speaks 1999", server="up"),
                NoCommonEra,
                "no session with server 'up' is available: it speaks 1999",
            ),
        ],
    )
    async def test_session_that_can_not_be_opened_says_why_and_is_tried_again(self, pool, opener, failure, kind, words):
        ann = Client()
        opener.fails = failure
        for _ in range(3):
            with pytest.raises(kind) as failed:
                await pool.own(ann, ROOTS)
            assert (failed.value.message, failed.value.server) == (words, "up")
            await settled()
        opener.fails = None

        assert await pool.own(ann, ROOTS) is opener.members[0]
        assert len(opener.asked) == 4

    async def test_session_that_is_being_opened_when_the_gateway_stops_fails_who_waits(self, opener):
        opener.may_open.clear()
        async with anyio.create_task_group() as tasks:
            asking = asyncio.create_task(Pool(CONFIG, opener, tasks, ShareRule()).own(Client(), ROOTS))
            await settled()
            tasks.cancel_scope.cancel()
        with pytest.raises(UpstreamUnavailable, match="the gateway is stopping"):
            await asking

    async def test_all_sessions_end_together(self, pool, opener):
        ann = Client()
        await pool.own(ann, ROOTS)
        async with pool.lease(ROOTS, caller()):
            pass
        pool.close()
        await settled()

        assert (len(opener.ended), len(pool), pool.find(ann)) == (2, 0, None)


class TestBounds:
    async def test_sessions_are_bounded_in_words_that_name_the_setting(self, pool, opener):
        for name in ("ann", "bob"):
            await pool.own(Client(name), ROOTS)
        with pytest.raises(UpstreamUnavailable) as refused:
            await pool.own(Client("eve"), ROOTS)
        with pytest.raises(UpstreamUnavailable):
            async with pool.lease(ROOTS, caller()):
                pass

        assert refused.value.message == (
            "no session with server 'up' is available: all 2 sessions with server 'up' are in use "
            "(upstreams.up.client_sessions); try again later"
        )
        assert len(opener.asked) == 2

    async def test_principal_has_a_share_that_its_own_and_its_borrowed_sessions_take(self, pool_of):
        pool = pool_of(UpstreamConfig("up", command="c", client_sessions=4), ShareRule(0.5))
        await pool.own(Client(alone=False), ROOTS)
        async with pool.lease(ROOTS, caller(alone=False)):
            with pytest.raises(UpstreamUnavailable, match="'ann' already has 2 of the 4 sessions"):
                await pool.own(Client(alone=False), ROOTS)
            await pool.own(Client("bob", alone=False), ROOTS)
        await pool.own(Client(alone=False), ROOTS)

    async def test_session_counts_until_nothing_of_it_is_left(self, pool, opener):
        ann = Client()
        await pool.own(ann, ROOTS)
        await pool.own(Client(), ROOTS)
        opener.may_end.clear()
        pool.release(ann)
        await settled()
        with pytest.raises(UpstreamUnavailable, match="are in use"):
            await pool.own(Client(), ROOTS)
        opener.may_end.set()
        await settled()

        assert await pool.own(Client(), ROOTS)

    async def test_borrowed_session_that_nobody_uses_makes_room_for_another_the_oldest_first(self, pool, opener, clock):
        leases = [pool.lease(each, caller()) for each in (ROOTS, PLAIN)]
        members = [await each.__aenter__() for each in leases]
        for each in reversed(leases):
            clock.time += 1
            await each.__aexit__(None, None, None)
        await pool.own(Client(), ROOTS)
        await settled()

        assert opener.ended == [members[1]]

    async def test_sessions_that_do_not_end_are_not_followed_by_more_for_ever(self, pool, opener):
        opener.may_end.clear()
        for _ in range(4):
            async with pool.lease(ROOTS, caller()) as member:
                pass
            member.leave.set()
        with pytest.raises(UpstreamUnavailable, match="4 sessions with it are open or still ending; call again later"):
            async with pool.lease(ROOTS, caller()):
                pass


class TestLease:
    async def test_session_is_used_by_one_at_a_time_and_lent_again(self, pool, opener):
        ann = caller()
        async with pool.lease(ROOTS, ann) as first:
            assert (pool.lends(first), pool.lent(ROOTS), pool.lent(PLAIN)) == (True, first, None)
            async with pool.lease(ROOTS, caller()) as second:
                assert second is not first
        lent = [*first.session.lent]
        async with pool.lease(ROOTS, ann) as again:
            assert again in (first, second)

        assert opener.asked[0] == (ROOTS, None, ann)
        assert lent == [None]
        assert again.session.lent == [None, ann, None]
        assert opener.ended == []

    async def test_session_that_was_opened_with_other_capabilities_is_not_lent(self, pool, opener):
        async with pool.lease(ROOTS, caller()) as first:
            pass
        async with pool.lease(PLAIN, caller()) as second:
            assert second is not first
        async with pool.lease(Terms(("handshake",)), caller()) as third:
            assert third is second

    async def test_own_session_of_a_client_is_not_lent(self, pool):
        member = await pool.own(Client(), ROOTS)
        async with pool.lease(ROOTS, caller()) as lent:
            assert lent is not member
        assert not pool.lends(member)
        assert pool.lent(ROOTS) is lent

    async def test_session_whose_server_was_told_something_by_one_principal_is_lent_to_no_other(self, pool):
        async with pool.lease(ROOTS, caller()) as first:
            with first.session.questions.one():
                pass
        async with pool.lease(ROOTS, caller("bob")) as second:
            assert second is not first
            with second.session.questions.one():
                pass
        async with pool.lease(ROOTS, caller("bob"), wanted=first) as wanted:
            assert wanted is second
        async with pool.lease(ROOTS, caller()) as again:
            assert again is first

    async def test_server_that_knows_roots_asks_its_next_caller_for_theirs(self, pool, opener):
        for told in (True, False):
            async with pool.lease(ROOTS, caller()) as member:
                member.session.told_roots = told
        asked = len(member.session.asked)
        async with pool.lease(ROOTS, caller()):
            assert member.session.told == ["notifications/roots/list_changed"]
            assert len(member.session.asked) == asked

    async def test_connection_that_breaks_when_it_is_handed_over_is_noticed_by_the_request_itself(self, pool):
        async with pool.lease(ROOTS, caller()) as member:
            member.session.told_roots = True

        async def breaks(method, params=None):
            raise LinkLost("it broke")

        member.session.notify = breaks
        async with pool.lease(ROOTS, caller()) as again:
            assert again is member

    @pytest.mark.parametrize(
        ("failure", "ends"), [(rpc_error(1, "no"), False), (NoAnswer("no"), True), (asyncio.CancelledError(), True)]
    )
    async def test_session_that_may_still_work_on_a_call_is_lent_to_nobody_else(self, pool, opener, failure, ends):
        async def use():
            async with pool.lease(ROOTS, caller()):
                raise failure

        with pytest.raises(type(failure)):
            await use()
        await settled()

        assert len(opener.ended) == ends
        assert len(pool) == 1 - ends

    async def test_wanted_session_is_waited_for(self, pool):
        async with pool.lease(ROOTS, caller()) as first:
            waiting = asyncio.create_task(self._leased(pool, first))
            await settled()
            assert not waiting.done()

        assert await waiting is first

    async def test_wanted_session_that_is_gone_or_another_clients_is_replaced_by_another(self, pool_of):
        pool = pool_of(UpstreamConfig("up", command="c"))
        async with pool.lease(ROOTS, caller()) as first:
            waiting = asyncio.create_task(self._leased(pool, first))
            await settled()
            first.session.transport.closed.set()
        own = await pool.own(Client(), ROOTS)

        assert await waiting not in (first, own)
        assert await self._leased(pool, own) is not own

    async def _leased(self, pool, wanted):
        async with pool.lease(ROOTS, caller(), wanted) as member:
            return member

    async def test_wanted_session_that_is_not_free_in_time_is_said(self, pool, monkeypatch):
        monkeypatch.setattr(module, "_LEASE_TIME", 0.01)
        async with pool.lease(ROOTS, caller()) as first:
            with pytest.raises(UpstreamUnavailable, match=r"has been running another call for 0\.01 s"):
                await self._leased(pool, first)


class TestEnds:
    @pytest.fixture(autouse=True)
    def _often(self, monkeypatch):
        monkeypatch.setattr(module, "_SWEEP", 0.0)

    @pytest.mark.parametrize(("seconds", "ends"), [(60.0, False), (61.0, True)])
    async def test_borrowed_session_that_nobody_uses_ends_after_a_minute(
        self, pool_of, pool, opener, clock, seconds, ends
    ):
        async with pool.lease(ROOTS, caller()):
            pass
        async with pool.lease(PLAIN, caller()):
            clock.time += seconds
            pool_of.tasks.start_soon(pool.sweep)
            await settled()
            assert opener.ended == opener.members[:1] * ends

    @pytest.mark.parametrize(
        ("heard", "idle_since", "sessions", "ends"),
        [
            (0, 940.0, "auto", False),
            (0, 939.0, "auto", True),
            (1, 939.0, "auto", False),
            (0, None, "auto", False),
            (0, 939.0, "per_client", False),
        ],
    )
    async def test_session_of_a_client_that_was_silent_since_it_was_opened_ends(
        self, pool_of, opener, clock, heard, idle_since, sessions, ends
    ):
        pool = pool_of(UpstreamConfig("up", command="c", sessions=sessions))
        ann = Client()
        await pool.own(ann, ROOTS)
        ann.times_heard, ann.idle_since = heard, idle_since
        pool_of.tasks.start_soon(pool.sweep)
        await settled()

        assert (pool.find(ann) is None) is ends
        assert len(opener.ended) == ends

    async def test_session_on_which_a_call_got_no_answer_is_asked_once_whether_it_lives(self, pool, opener):
        ann = Client()
        member = await pool.own(ann, PLAIN)
        for _ in range(2):
            pool.suspect(member)
        await settled()
        lives = ([*member.session.asked], member.alive, member.suspected)
        member.session.pages["ping"] = LinkLost("it broke")
        pool.suspect(member)
        await settled()
        asked = len(member.session.asked)
        pool.suspect(member)
        await settled()

        assert lives == ([("ping", None)], True, False)
        assert asked == len(member.session.asked) == 2
        assert (opener.ended, pool.find(ann)) == ([member], None)
