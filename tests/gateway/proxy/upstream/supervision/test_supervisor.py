"""One server's main session: opened, opened again after pauses, put to sleep, and waited for."""

import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest

from gateway.config.gateway_config import ExchangeConfig, LimitsConfig, UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Nobody
from gateway.proxy.transport.transport_interface import LinkLost
from gateway.proxy.upstream.session.negotiation import Terms
from gateway.proxy.upstream.supervision import supervisor as module
from gateway.proxy.upstream.supervision.maintenance import Follower
from gateway.proxy.upstream.supervision.supervisor import Supervisor
from tests.gateway.proxy.transport.kept_log import settled
from tests.gateway.proxy.upstream.supervision.standin_session import TELLS, Opener

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("_whole_pauses", "clock")]
LIMITS = LimitsConfig(start_timeout=30.0, restart_backoff=4.0, restart_backoff_max=60.0)


class Server:
    """A server under supervision."""

    def __init__(self, opener, *, limits=LIMITS, is_common=True, url=None, metrics=None, **config):
        self.opener, self.changes, self.slept, self.busy = opener, [], 0, False
        self.config = UpstreamConfig("up", **({"command": "c"} if url is None else {"url": url}), **config)
        self.it = Supervisor(
            self.config,
            limits,
            metrics or Metrics(),
            opener,
            Follower("up"),
            lambda kinds: self.changes.append(set(kinds)),
            lambda: self.busy,
            self._sleeps,
            is_common=is_common,
        )

    def _sleeps(self):
        self.slept += 1

    @asynccontextmanager
    async def running(self):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.it.run)
            await settled()
            yield
            self.it.stop()
            await settled()
            assert self.it.ended.is_set()
            tasks.cancel_scope.cancel()


@pytest.fixture
async def opener():
    return Opener(tools=TELLS, logging={})


@pytest.fixture
def _whole_pauses(monkeypatch):
    """Each pause is as long as it can be."""
    monkeypatch.setattr(module.random, "random", lambda: 1.0)


class TestLife:
    async def test_server_is_up_once_it_has_listed_its_tools_and_gone_after_stop(self, opener, caplog):
        caplog.set_level("INFO")
        server = Server(opener)
        async with server.running():
            (member,) = opener.members
            assert server.it.main is server.it.last is member
            assert server.it.lifecycle.state == "up"
            assert server.it.settled.is_set()
            assert await server.it.want() is member
            assert server.changes == [set()]

        assert opener.ended == [member]
        assert server.it.main is None
        assert opener.asked == [(Terms(("modern", "handshake"), {}), None, True)]
        assert "upstream is up" in caplog.text
        assert "upstream is down" not in caplog.text

    async def test_server_that_dies_is_started_again_after_a_pause_that_grows_until_it_answers(self, opener, clock):
        server = Server(opener)
        async with server.running():
            for number, pause in enumerate((4.0, 8.0, 16.0), 1):
                opener.members[-1].session.transport.closed.set()
                await settled()
                assert (server.it.lifecycle.state, server.it.main) == ("restarting", None)
                await clock.passes(pause - 0.1)
                assert len(opener.members) == number
                await clock.passes(0.1)
                assert len(opener.members) == number + 1
            assert server.it.lifecycle.restarts == 3
            server.it.answered()
            opener.members[-1].session.transport.closed.set()
            await settled()
            await clock.passes(4.0)
            assert len(opener.members) == 5
            assert server.it.why_away() == "its process ended"

    async def test_server_that_does_not_start_says_why_and_is_tried_again(self, opener, clock, caplog):
        opener.fails = LinkLost("it broke")
        server = Server(opener)
        async with server.running():
            assert server.it.settled.is_set()
            with pytest.raises(UpstreamUnavailable) as away:
                await server.it.want()
            opener.fails = None
            await clock.passes(4.0)
            assert server.it.main is opener.members[0]
            assert server.changes == [set(), set()]

        assert away.value.message == (
            "server 'up' is not available: it broke; the gateway keeps trying to start it, call again later"
        )
        assert away.value.server == "up"
        assert caplog.text.count("upstream is down") == 1

    @pytest.mark.parametrize(
        ("failure", "protocol", "url", "eras"),
        [
            (LinkLost("it broke"), "auto", None, ("handshake", "modern")),
            (LinkLost("it broke"), "auto", "http://x", ("modern", "handshake")),
            (KeyError("x"), "auto", None, ("modern", "handshake")),
            (LinkLost("it broke"), "modern", None, ("modern",)),
        ],
    )
    async def test_process_that_exits_at_an_unknown_request_is_asked_for_the_handshake_first_next_time(
        self, opener, clock, failure, protocol, url, eras
    ):
        opener.fails = failure
        async with Server(opener, url=url, protocol=protocol).running():
            await clock.passes(4.0)

        assert opener.asked[1] == (Terms(eras, {}), None, True)

    async def test_server_that_does_not_list_in_time_is_given_up(self, opener, clock):
        opener.pages = {"tools/list": lambda _: anyio.sleep_forever()}
        server = Server(opener)
        async with server.running():
            await clock.passes(29.9)
            before = server.it.lifecycle.state
            await clock.passes(0.1)

            assert (before, server.it.lifecycle.state) == ("starting", "restarting")
            assert server.it.why_away() == "it did not list what it offers within 30 s (limits.start_timeout)"

    @pytest.mark.parametrize("when", ["opening", "listing", "pausing", "asleep"])
    async def test_stop_ends_whatever_is_under_way(self, opener, caplog, when):
        if when == "opening":
            opener.may_open.clear()
        elif when == "listing":
            opener.pages = {"tools/list": lambda _: anyio.sleep_forever()}
        elif when == "pausing":
            opener.fails = LinkLost("it broke")
        server = Server(opener, start="lazy" if when == "asleep" else "eager")
        async with server.running():
            waiting = asyncio.create_task(server.it.want()) if when in ("opening", "listing") else None
            await settled()
        if waiting is not None:
            with pytest.raises(UpstreamUnavailable):
                await waiting

        assert len(opener.members) == len(opener.ended) == (when == "listing")
        assert caplog.text.count("upstream is down") == (when == "pausing")

    async def test_session_is_used_by_nobody_while_its_process_ends(self, opener):
        server = Server(opener)
        async with server.running():
            opener.may_end.clear()
            opener.members[0].session.transport.closed.set()
            await settled()
            ending = server.it.main
            opener.may_end.set()
            await settled()

        assert ending is None

    async def test_server_at_which_nobody_has_signed_in_for_all_is_reported_once(self, opener, clock, caplog):
        opener.fails = LinkLost("nobody has signed in")
        async with Server(opener, url="http://x", exchange=ExchangeConfig("me")).running():
            for pause in (4.0, 8.0):
                await clock.passes(pause)

        assert len(opener.asked) == 3
        assert caplog.text.count("upstream is down") == 1


class TestLoss:
    async def test_lost_session_is_opened_again_after_a_pause_for_the_reason_given(self, opener, clock):
        server = Server(opener)
        async with server.running():
            server.it.lose(opener.members[0], "it did not answer a ping")
            await settled()
            away = server.it.why_away()
            await clock.passes(3.9)
            before = len(opener.members)
            await clock.passes(0.1)

            assert (away, before, len(opener.members)) == ("it did not answer a ping", 1, 2)
            server.it.lose(opener.members[0], "too late")
            assert server.it.main is opener.members[1]

    async def test_forgotten_session_is_opened_again_at_once_and_is_no_failure(self, opener, caplog):
        caplog.set_level("INFO")
        server = Server(opener)
        async with server.running():
            server.it.lose(opener.members[0], "it has forgotten our session", at_once=True)
            waiting = asyncio.create_task(server.it.want())
            await settled()

            assert await waiting is server.it.main is opener.members[1]
            assert server.it.lifecycle.failures == server.it.lifecycle.restarts == 0
        assert "opening a new one" in caplog.text
        assert "upstream is down" not in caplog.text

    async def test_pause_follows_again_after_a_session_that_was_opened_at_once(self, opener, clock):
        server = Server(opener)
        async with server.running():
            server.it.lose(opener.members[0], "forgotten", at_once=True)
            await settled()
            opener.members[1].session.transport.closed.set()
            await settled()
            before = len(opener.members)
            await clock.passes(4.0)

            assert (before, len(opener.members)) == (2, 3)


class TestSleep:
    async def test_lazy_server_is_started_when_it_is_wanted(self, opener):
        server = Server(opener, start="lazy")
        async with server.running():
            asleep = (server.it.asleep, server.it.settled.is_set(), len(opener.asked))
            waiting = [asyncio.create_task(server.it.want()) for _ in range(3)]
            await settled()

            assert asleep == (True, True, 0)
            assert [await each for each in waiting] == opener.members * 3
            assert (server.it.asleep, len(opener.asked)) == (False, 1)
        assert not server.it.asleep

    async def test_server_that_nobody_needed_sleeps_until_it_is_wanted_and_that_is_no_failure(
        self, opener, clock, caplog
    ):
        caplog.set_level("INFO")
        server = Server(opener, idle_stop=60.0)
        async with server.running():
            await clock.passes(60.0)
            asleep = (server.it.asleep, server.slept, server.it.main, len(opener.ended))
            changes = len(server.changes)
            await clock.passes(3600.0)
            waiting = asyncio.create_task(server.it.want())
            await settled()

            assert asleep == (True, 1, None, 1)
            assert changes == 1
            assert await waiting is opener.members[1]
            assert server.it.lifecycle.restarts == server.it.lifecycle.failures == 0
        assert "upstream was idle and has been stopped" in caplog.text

    async def test_server_that_falls_asleep_again_is_not_started_before_it_is_wanted_again(self, opener, clock):
        server = Server(opener, start="lazy", idle_stop=60.0)
        async with server.running():
            for number in (1, 2):
                waiting = asyncio.create_task(server.it.want())
                await settled()
                await waiting
                await clock.passes(60.0)
                await clock.passes(3600.0)
                assert (server.it.asleep, len(opener.asked)) == (True, number)

    async def test_server_that_is_wanted_while_it_falls_asleep_is_woken_again(self, opener, clock):
        server = Server(opener, idle_stop=60.0)
        async with server.running():
            opener.may_end.clear()
            await clock.passes(60.0)
            waiting = asyncio.create_task(server.it.want())
            await settled()
            opener.may_end.set()
            await settled()

            assert await waiting is opener.members[1]

    async def test_waking_is_not_waited_for_longer_than_a_start_may_take(self, opener, clock):
        server = Server(opener, start="lazy")
        opener.may_open.clear()
        async with server.running():
            waiting = asyncio.create_task(server.it.want())
            await settled()
            seen = []
            for seconds in (30.9, 0.1):
                await clock.passes(seconds)
                seen.append(waiting.done())
            with pytest.raises(UpstreamUnavailable, match="it is still starting"):
                await waiting

        assert seen == [False, True]


class TestReturning:
    @pytest.mark.parametrize(("backoff", "waits"), [(1.9, True), (2.0, False)])
    async def test_server_that_will_be_back_in_a_moment_is_waited_for(self, opener, clock, backoff, waits):
        server = Server(opener, limits=LimitsConfig(restart_backoff=backoff))
        async with server.running():
            opener.members[0].session.transport.closed.set()
            await settled()
            waiting = asyncio.create_task(server.it.want())
            await settled()

            assert waiting.done() is not waits
            await clock.passes(backoff)
            if waits:
                assert await waiting is opener.members[1]
            else:
                with pytest.raises(UpstreamUnavailable, match="its process ended"):
                    await waiting

    async def test_server_that_takes_longer_to_come_back_is_not(self, opener, clock):
        server = Server(opener, limits=LimitsConfig(restart_backoff=1.0))
        async with server.running():
            opener.may_open.clear()
            opener.members[0].session.transport.closed.set()
            await settled()
            waiting = asyncio.create_task(server.it.want())
            await settled()
            seen = []
            for seconds in (1.9, 0.1):
                await clock.passes(seconds)
                seen.append(waiting.done())
            with pytest.raises(UpstreamUnavailable):
                await waiting

        assert seen == [False, True]

    async def test_server_that_was_never_up_is_not_waited_for(self, opener):
        opener.fails = LinkLost("it broke")
        server = Server(opener, limits=LimitsConfig(restart_backoff=1.0))
        async with server.running():
            with pytest.raises(UpstreamUnavailable, match="it broke"):
                await server.it.want()


class TestAdopted:
    @pytest.mark.parametrize(
        ("protocol", "eras"),
        [("auto", ("handshake", "modern")), ("handshake", ("handshake",)), ("modern", ("modern",))],
    )
    async def test_session_of_the_only_client_is_opened_with_what_it_can_do(self, opener, protocol, eras):
        client = Nobody(modern=False, capabilities={"roots": {}})
        client.log_level = "info"
        server = Server(opener, protocol=protocol)
        server.it.adopt(client)
        async with server.running():
            assert opener.asked == [(Terms(eras, {"roots": {}}), client, None)]
            assert ("logging/setLevel", "info") in opener.members[0].session.asked


class TestLists:
    async def test_lists_are_read_again_when_they_have_or_may_have_changed(self, opener, clock):
        server = Server(opener)
        async with server.running():
            seen = []
            for doubt in (server.it.list_again, server.it.list_in_doubt, lambda: server.it.changed("tools")):
                doubt()
                await clock.passes(1.0)
                seen.append(len(opener.members[0].session.asked))
            changes = [*server.changes]

        assert seen == [2, 3, 3]
        assert changes == [set(), set(), set(), {"tools"}]
        server.it.list_again()
        server.it.list_in_doubt()


@pytest.mark.parametrize("is_common", [True, False])
async def test_metrics_say_whether_the_server_is_up_and_how_often_it_was_restarted(opener, clock, is_common):
    said = []

    class Told(Metrics):
        def upstream_up(self, server, up):
            said.append((server, up))

        def upstream_restarted(self, server):
            said.append(f"{server} restarted")

        def list_changed(self, server, kind):
            said.append(f"{server} {kind}")

    server = Server(opener, is_common=is_common, metrics=Told())
    async with server.running():
        opener.members[0].session.transport.closed.set()
        await settled()
        await clock.passes(4.0)
        server.it.changed("prompts")

    up = [("up", True), ("up", False), "up restarted", ("up", True), "up prompts", ("up", False)]
    assert said == [each for each in up if is_common or isinstance(each, str)]
