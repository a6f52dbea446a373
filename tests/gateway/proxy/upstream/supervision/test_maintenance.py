"""What is done for a session that is up: subscribing, listing again, pinging, and stopping it when nobody needs it."""

import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.proxy.transport.transport_interface import LinkLost, MaybeForgotten, NoAnswer
from gateway.proxy.upstream.supervision import maintenance as module
from gateway.proxy.upstream.supervision.maintenance import Follower, Maintenance, list_all
from tests.gateway.proxy.transport.kept_log import settled
from tests.gateway.proxy.upstream.supervision.standin_session import REFUSED, TELLS, member_of, tools

pytestmark = pytest.mark.anyio
SUBSCRIBE, LISTEN = "resources/subscribe", "subscriptions/listen"
START = 30.0


@asynccontextmanager
async def running(work, *args):
    """Have something run while the context lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, *args)
        await settled()
        yield
        tasks.cancel_scope.cancel()


async def hang(*_):
    await anyio.sleep_forever()


def hanging(_cursor):
    return hang()


@pytest.fixture
def follower():
    return Follower("up")


class TestFollowing:
    async def test_watcher_waits_for_no_session_and_not_for_ever(self, follower, clock):
        follower.want("a")
        await follower.settled("a")
        member, server = member_of()
        server.pages[SUBSCRIBE] = hanging
        async with running(follower.follow, member):
            waiting = asyncio.create_task(follower.settled("a"))
            await settled()
            seen = []
            for seconds in (4.9, 0.1):
                await clock.passes(seconds)
                seen.append(waiting.done())

        assert seen == [False, True]

    async def test_watchers_wait_no_longer_than_the_session_lasts(self, follower):
        follower.want("a")
        member, server = member_of()
        server.pages[SUBSCRIBE] = hanging
        async with running(follower.follow, member):
            waiting = asyncio.create_task(follower.settled("a"))
            await settled()
        await settled()

        assert waiting.done()

    @pytest.mark.parametrize("answer", [REFUSED, NoAnswer("no"), LinkLost("it broke"), hanging])
    async def test_subscription_that_is_refused_or_not_answered_holds_up_no_other(self, follower, clock, answer):
        for uri in ("a", "b"):
            follower.want(uri)
        member, server = member_of()
        server.pages[SUBSCRIBE] = answer
        async with running(follower.follow, member):
            if answer is hanging:
                await clock.passes(9.9)
                assert server.asked == [(SUBSCRIBE, "a")]
                await clock.passes(0.1)

            assert server.asked == [(SUBSCRIBE, "a"), (SUBSCRIBE, "b")]


class TestListening:
    async def test_stream_that_ends_soon_is_opened_again_after_longer_and_longer_pauses(self, follower, clock):
        member, server = member_of(modern=True, tools=TELLS)
        async with running(follower.follow, member):
            for number, pause in enumerate((2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0), 1):
                await clock.passes(pause - 0.1)
                assert len(server.asked) == number
                await clock.passes(0.1)
                assert len(server.asked) == number + 1

    @pytest.mark.parametrize(("lasts", "pause"), [(59.9, 4.0), (60.1, 1.0)])
    async def test_stream_that_lasted_begins_a_new_row_of_pauses(self, follower, clock, lasts, pause):
        member, server = member_of(modern=True, tools=TELLS)
        async with running(follower.follow, member):
            server.pages[LISTEN] = lambda _: anyio.sleep(lasts)
            await clock.passes(2.0)
            await clock.passes(lasts)
            await clock.passes(pause - 0.1)
            before = len(server.asked)
            await clock.passes(0.1)

        assert (before, len(server.asked)) == (2, 3)


class Keeper:
    """Notes what is decided about a session."""

    def __init__(self):
        self.lost, self.stopped = [], []

    def lose(self, member, cause, *, at_once=False):
        self.lost.append((cause, at_once))
        member.leave.set()

    def stop_idle(self, member):
        self.stopped.append(member)
        member.leave.set()


class Tended:
    """A session that is tended."""

    def __init__(self, url=None, *, idle_stop=0.0, **capabilities):
        self.member, self.server = member_of(**capabilities)
        self.keeper, self.changes, self.busy = Keeper(), [], False
        self.follower = Follower("up")
        program = {"command": "c"} if url is None else {"url": url}
        config = UpstreamConfig("up", idle_stop=idle_stop, **program)
        self.maintenance = Maintenance(
            config, LimitsConfig(start_timeout=START), self.follower, self.changes.append, lambda: self.busy
        )

    async def run(self):
        await self.maintenance.tend(self.member, self.keeper)

    def lists(self):
        return [method for method, _ in self.server.asked if method.endswith("/list")]


class TestTending:
    async def test_work_for_a_session_ends_with_it(self):
        for end in ("leave", "closed"):
            tended = Tended()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tended.run)
                await settled()
                (tended.member.leave if end == "leave" else tended.server.transport.closed).set()
            assert tended.keeper.lost == []

    async def test_changes_are_listed_together_and_told_with_a_pause_between(self, clock):
        tended = Tended(tools=TELLS, prompts=TELLS)
        tended.server.pages = {"tools/list": tools("a"), "prompts/list": {"prompts": []}}
        async with running(tended.run):
            for kind in ("tools", "prompts", None):
                tended.maintenance.changed(kind)
            await settled()
            first = ([*tended.changes], tended.lists())
            tended.maintenance.changed("resources")
            seen = []
            for seconds in (0.9, 0.1):
                await clock.passes(seconds)
                seen.append(tended.changes[1:])

        assert first == ([{"tools", "prompts"}], ["tools/list", "prompts/list"])
        assert seen == [[], [{"resources"}]]

    async def test_pause_is_the_longer_the_longer_a_change_takes_to_apply(self, monkeypatch, clock):
        tended = Tended(tools=TELLS)
        ticks = iter((20.0, 20.5, 30.0, 30.0))
        monkeypatch.setattr(module, "monotonic", lambda: next(ticks))
        async with running(tended.run):
            for _ in range(2):
                tended.maintenance.changed("tools")
                await settled()
            seen = []
            for seconds in (9.9, 0.1):
                await clock.passes(seconds)
                seen.append(len(tended.changes))

        assert seen == [1, 2]

    @pytest.mark.parametrize("answer", [REFUSED, NoAnswer("no"), LinkLost("it broke"), hanging])
    async def test_listing_again_that_fails_is_logged_and_tells_no_change(self, caplog, clock, answer):
        tended = Tended(tools=TELLS)
        tended.server.pages["tools/list"] = answer
        async with running(tended.run):
            tended.maintenance.changed("tools")
            await settled()
            await clock.passes(START if answer is hanging else 0.0)
            tended.server.pages["tools/list"] = tools("a")
            tended.maintenance.changed("tools")
            await clock.passes(1.0)

        assert caplog.text.count("upstream could not be listed again") == 1
        assert tended.changes == [{"tools"}]

    @pytest.mark.parametrize(
        ("answer", "lost"),
        [
            ({}, []),
            (LinkLost("it broke"), [("it broke", False)]),
            (MaybeForgotten("no"), [("it has forgotten our session: it refuses even a ping", True)]),
            (hanging, [("it did not answer a ping", False)]),
        ],
    )
    async def test_server_that_a_call_got_no_answer_from_is_asked_whether_it_lives(self, clock, answer, lost):
        tended = Tended()
        tended.server.pages["ping"] = answer
        async with running(tended.run):
            before = [*tended.server.asked]
            tended.maintenance.suspect()
            await settled()
            if answer is hanging:
                await clock.passes(19.9)
                assert tended.keeper.lost == []
                await clock.passes(0.1)

        assert before == []
        assert tended.server.asked == [("ping", None)]
        assert tended.keeper.lost == lost

    @pytest.mark.parametrize(
        ("url", "busy", "pings"),
        [("http://x", False, [0, 1, 2]), ("http://x", True, [0, 0, 0]), (None, False, [0, 0, 0])],
    )
    async def test_server_behind_a_url_is_pinged_now_and_then_unless_it_is_busy(self, clock, url, busy, pings):
        tended = Tended(url)
        tended.busy = busy
        seen = []
        async with running(tended.run):
            for seconds in (14.9, 0.1, 15.0):
                await clock.passes(seconds)
                seen.append(len(tended.server.asked))
            tended.maintenance.suspect()
            await settled()

        assert seen == pings
        assert len(tended.server.asked) == pings[-1] + 1

    async def test_server_that_nobody_has_needed_for_a_while_is_stopped(self, clock):
        tended, seen = Tended(idle_stop=60.0), []
        async with running(tended.run):
            for seconds in (30.0, 59.9, 0.1):
                await clock.passes(seconds)
                seen.append([*tended.keeper.stopped])
                if seconds == 30.0:
                    tended.maintenance.used()

        assert seen == [[], [], [tended.member]]

    @pytest.mark.parametrize("why", ["busy", "watched"])
    @pytest.mark.parametrize(("idle_stop", "pause"), [(60.0, 1.0), (0.5, 0.5)])
    async def test_server_is_stopped_soon_after_its_last_call_and_its_last_watcher(self, clock, why, idle_stop, pause):
        tended = Tended(idle_stop=idle_stop)
        tended.busy = why == "busy"
        if why == "watched":
            tended.follower.want("a")
        async with running(tended.run):
            await clock.passes(idle_stop)
            await clock.passes(100.0)
            needed = [*tended.keeper.stopped]
            tended.busy = False
            tended.follower.drop("a")
            await clock.passes(pause)

        assert (needed, tended.keeper.stopped) == ([], [tended.member])

    async def test_server_without_a_time_is_never_stopped(self, clock):
        tended = Tended()
        async with running(tended.run):
            await clock.passes(10**6)

        assert tended.keeper.stopped == []


class TestListingAll:
    async def test_only_tools_must_be_listed_and_what_else_fails_is_logged(self, caplog):
        member, server = member_of(tools={}, prompts={}, resources={})
        server.pages = {"tools/list": tools("a"), "prompts/list": REFUSED, "resources/list": NoAnswer("n\no")}
        await list_all(member)

        assert [method for method, _ in server.asked] == [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ]
        assert caplog.text.count("upstream did not list everything that it offers") == 2
        assert "n\no" not in caplog.text

    @pytest.mark.parametrize("kind", ["tools", "prompts"])
    async def test_connection_that_breaks_is_no_list_that_fails(self, kind):
        member, server = member_of(tools={}, prompts={})
        server.pages = {f"{kind}/list": LinkLost("it broke")}
        with pytest.raises(LinkLost):
            await list_all(member)
