"""One request to a server: its turn, its time, its second try, and what is said where it fails."""

import asyncio
from types import SimpleNamespace

import anyio
import pytest

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.errors import RpcError, UpstreamTimeout, UpstreamUnavailable
from gateway.proxy.caller import Nobody, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.transport.transport_interface import (
    LinkLost,
    MaybeForgotten,
    NoAnswer,
    PeerError,
    SessionForgotten,
    SignInReplaced,
    Unfit,
)
from gateway.proxy.upstream import dispatcher as module
from gateway.proxy.upstream.dispatcher import Dispatcher, Gate, SessionGone, Users
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.session.in_flight import TimedCaller
from gateway.proxy.upstream.supervision.lifecycle import Lifecycle
from tests.gateway.proxy.transport.kept_log import settled
from tests.gateway.proxy.upstream.supervision.standin_session import member_of

pytestmark = pytest.mark.anyio
CALL = ("tools/call", {"name": "x"})
ANN = Nobody(modern=False, principal=Principal("ann", headers={"x-a": "1", "x-b": "2"}))


class Told:
    """Metrics, supervisor and selector: what a dispatcher tells them, and the sessions that it gets."""

    def __init__(self):
        self.queued_for, self.refusals, self.uses, self.lost, self.suspected = [], [], 0, [], []
        self.members = []
        self.lifecycle = Lifecycle()
        self.maintenance = SimpleNamespace(used=self._used)

    def queued(self, server, seconds):
        self.queued_for.append((server, seconds))

    def refused(self, server, code):
        self.refusals.append((server, code))

    def _used(self):
        self.uses += 1

    def lose(self, member, cause, *, at_once):
        self.lost.append((member, cause, at_once))

    def answered(self):
        self.lifecycle = self.lifecycle.answered()

    def suspect(self, member):
        self.suspected.append(member)

    def at_once(self, caller, method):
        return next((each for each in self.members if each.alive), None)

    async def for_call(self, caller, method):
        await anyio.sleep(1.0)
        raise UpstreamUnavailable("it sleeps", server="up")


class World:
    """One server, and what asks it."""

    def __init__(self, *, url=None, rule=None, limits=None, **config):
        self.told = Told()
        self.received, self.answers = [], []
        program = {"command": "c"} if url is None else {"url": url}
        settings = UpstreamConfig("up", **program, **config)
        self.gate = Gate(settings.concurrency, settings.queue)
        rest = (self.told, self.told, self.told, self.gate, rule or ShareRule(), GivenUris())
        self.it = Dispatcher(settings, limits or LimitsConfig(tool_timeout=60.0, tool_timeout_max=100.0), *rest)
        self.add()

    def add(self, **capabilities):
        """One more session."""
        member, server = member_of(**capabilities)

        async def request(method, params, caller, *, headers=None, written=None):
            self.received.append((member, method, params, caller, headers, written))
            answer = self.answers.pop(0)
            answer = await answer() if callable(answer) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        server.call = request
        ping = server.request
        server.request = lambda method, params, *who, **more: (
            request(method, params, *who, **more) if who else ping(method, params)
        )
        self.told.members.append(member)
        return member

    async def ask(self, *request, caller=ANN, **more):
        return await self.it.request(*(request or CALL), caller, **more)


async def hang():
    await anyio.sleep_forever()


@pytest.fixture
def world():
    return World()


class TestAnswers:
    async def test_request_gets_the_answer_of_the_session_that_serves_its_caller(self, world):
        world.answers = [{"content": [{"type": "resource_link", "uri": "x:1"}]}]
        answer = await world.ask(headers={"x-h": "h"}, written="ids")
        (member,) = world.told.members

        assert answer["content"]
        assert world.received == [(member, *CALL, ANN, {"x-h": "h"}, "ids")]
        assert world.it._given.giver("x:1", ANN.principal) is member
        assert (world.gate.inside, world.told.uses) == (0, 1)

    @pytest.mark.parametrize(
        ("passed", "given", "sent"),
        [
            ((), None, None),
            (("x-b", "x-c"), None, {"x-b": "2"}),
            (("x-a", "x-b"), {"x-a": "ours"}, {"x-a": "ours", "x-b": "2"}),
        ],
    )
    async def test_headers_of_the_client_go_along_where_the_operator_says_so(self, passed, given, sent):
        world = World(client_headers=passed)
        world.answers = [{}, {}]
        await world.ask(headers=given)
        await world.ask(caller=Nobody(modern=False), headers=given)

        assert [each[4] for each in world.received] == [sent, given]

    @pytest.mark.parametrize(
        ("capabilities", "params", "is_timed"),
        [
            ({}, {}, False),
            ({}, {"_meta": {}}, False),
            ({}, {"_meta": {"progressToken": 1}}, True),
            ({"roots": {}}, {}, True),
        ],
    )
    async def test_caller_that_may_be_asked_or_hears_progress_does_not_pay_for_it(
        self, world, capabilities, params, is_timed
    ):
        world.answers = [{}]
        await world.ask("tools/call", params, caller=Nobody(modern=False, capabilities=capabilities))

        assert isinstance(world.received[0][3], TimedCaller) is is_timed

    async def test_error_of_the_server_is_an_answer(self, world):
        world.told.lifecycle = Lifecycle().went_down("x")
        world.answers = [PeerError({"code": 7, "message": "no", "data": 1})]
        with pytest.raises(RpcError) as failed:
            await world.ask()

        assert failed.value.error == {"code": 7, "message": "no", "data": 1}
        assert world.told.refusals == [("up", 7)]
        assert world.told.lifecycle.failures == 0
        assert world.told.suspected == []


class TestFailures:
    @pytest.mark.parametrize(
        ("request_", "what"),
        [
            (CALL, "the call of tool 'x'"),
            (("tools/call", {}), "the call of tool None"),
            (("resources/read", {"uri": "x:1"}), "resources/read of 'x:1'"),
            (("prompts/list", {}), "prompts/list"),
            (("prompts/get", {"name": 7}), "prompts/get"),
        ],
    )
    @pytest.mark.parametrize(
        ("failure", "begun"),
        [
            (LinkLost("it broke"), True),
            (NoAnswer("it broke"), True),
            (SignInReplaced(), False),
        ],
    )
    async def test_request_that_broke_off_says_which_and_whether_the_server_had_begun(
        self, world, request_, what, failure, begun
    ):
        world.answers = [failure]
        with pytest.raises(UpstreamUnavailable) as failed:
            await world.ask(*request_)

        assert failed.value.message == f"server 'up' broke off {what}: {failure}"
        assert (failed.value.server, failed.value.begun) == ("up", begun)
        assert world.told.suspected == world.told.members
        assert world.told.lost == []

    async def test_answer_that_can_not_be_carried_is_no_failure_of_the_server(self, world):
        world.answers = [Unfit("too long")]
        with pytest.raises(UpstreamUnavailable) as failed:
            await world.ask()

        assert failed.value.message == "the call of tool 'x' of server 'up' failed: too long"
        assert (failed.value.server, failed.value.begun) == ("up", True)
        assert world.told.suspected == []

    async def test_calls_that_one_end_fails_are_one_failure(self):
        world = World(breaker_failures=2)
        world.answers = [LinkLost("it broke")] * 3
        world.told.members[0].session.transport.closed.set()
        for _ in range(3):
            with pytest.raises(UpstreamUnavailable, match="broke off"):
                await world.ask(member=world.told.members[0])

        assert len(world.told.suspected) == 1

    async def test_server_that_fails_again_and_again_is_not_called_for_a_while(self, monkeypatch):
        now = [1000.0]
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
        world = World(breaker_failures=2, breaker_pause=5.0)
        world.answers = [NoAnswer("no")] * 2 + [{}]
        for _ in range(2):
            with pytest.raises(UpstreamUnavailable, match="broke off"):
                await world.ask()
        now[0] += 1.0
        with pytest.raises(UpstreamUnavailable) as paused:
            await world.ask()
        now[0] += 4.0
        await world.ask()

        assert paused.value.message == (
            "server 'up' is not available: it failed 2 times in a row and is not called for another 4.0 s"
        )
        assert world.it.breaker.failures == 0


class TestSecondTry:
    @pytest.mark.parametrize(
        ("failure", "at_once"), [(SessionForgotten("forgotten"), True), (LinkLost("gone", sent=False), False)]
    )
    async def test_request_that_the_server_has_not_begun_is_sent_once_more_on_another_session(
        self, world, failure, at_once
    ):
        first, second = *world.told.members, world.add()
        checked = []

        async def recheck():
            checked.append(len(world.received))

        world.answers = [failure, {"it": 1}]
        answer = await world.ask(recheck=recheck)

        assert answer == {"it": 1}
        assert [each[0] for each in world.received] == [first, second]
        assert first.leave.is_set()
        assert world.told.lost == [(first, str(failure), at_once)]
        assert checked == [1]

    async def test_request_is_not_repeated_a_second_time_or_where_it_may_not_be(self, world):
        world.add()
        world.add()
        world.answers = [LinkLost("gone", sent=False), LinkLost("gone again", sent=False)]
        with pytest.raises(UpstreamUnavailable, match="gone again") as failed:
            await world.ask()

        async def refuse():
            raise UpstreamUnavailable("it may have run", server="up")

        world.answers = [LinkLost("gone", sent=False)]
        world.add()
        with pytest.raises(UpstreamUnavailable, match="it may have run"):
            await world.ask(recheck=refuse)

        assert failed.value.begun is False

    async def test_request_that_must_use_one_session_is_not_sent_on_another(self, world):
        (given,) = world.told.members
        world.add()
        world.answers = [SessionForgotten("forgotten")]
        with pytest.raises(SessionGone, match="server 'up' broke off the call of tool 'x': forgotten") as gone:
            await world.ask(member=given)

        assert gone.value.server == "up"
        assert world.told.lost == [(given, "forgotten", True)]

    @pytest.mark.parametrize(
        ("url", "modern", "failure", "ping", "is_repeated"),
        [
            ("http://x", False, MaybeForgotten("no session"), MaybeForgotten("no"), True),
            ("http://x", False, PeerError({"code": -32001, "message": "?"}), MaybeForgotten("no"), True),
            ("http://x", False, PeerError({"code": 5, "message": "no such Session"}), MaybeForgotten("no"), True),
            ("http://x", False, PeerError({"code": 5, "message": "no such file"}), MaybeForgotten("no"), False),
            ("http://x", False, MaybeForgotten("no session"), {}, False),
            ("http://x", False, MaybeForgotten("no session"), LinkLost("it broke"), False),
            ("http://x", True, MaybeForgotten("no session"), MaybeForgotten("no"), False),
            (None, False, MaybeForgotten("no session"), MaybeForgotten("no"), False),
        ],
    )
    async def test_words_about_a_session_count_only_where_the_server_has_really_forgotten_it(
        self, url, modern, failure, ping, is_repeated
    ):
        world = World(url=url)
        world.told.members.clear()
        first = world.add(modern=modern)
        first.session.pages = {"ping": ping, "server/discover": ping}
        world.add(modern=modern)
        world.answers = [failure, {"it": 1}]
        if is_repeated:
            assert await world.ask() == {"it": 1}
        else:
            with pytest.raises((UpstreamUnavailable, RpcError)):
                await world.ask()

        assert len(world.received) == 1 + is_repeated


class TestTime:
    async def test_call_may_take_its_time_and_no_longer(self, world, clock):
        world.answers = [hang]
        asking = asyncio.create_task(world.ask())
        await settled()
        seen = []
        for seconds in (59.9, 0.2):
            await clock.passes(seconds)
            seen.append(asking.done())
        with pytest.raises(UpstreamTimeout) as late:
            await asking

        assert seen == [False, True]
        assert late.value.message == (
            "server 'up' did not answer the call of tool 'x' within 60 s; it was told to stop"
        )
        assert world.told.suspected == world.told.members
        assert (world.gate.inside, world.told.uses) == (0, 1)

    @pytest.mark.parametrize(
        ("settings", "seconds", "words"),
        [({"timeout": 5.0}, None, "within 5 s"), ({"timeout": 5.0}, 3.0, "within 3 s"), ({}, None, "within 60 s")],
    )
    async def test_time_is_that_of_the_call_else_of_the_server_else_of_all(self, clock, settings, seconds, words):
        world = World(**settings)
        world.answers = [hang]
        asking = asyncio.create_task(world.ask(seconds=seconds))
        await settled()
        await clock.passes(60.1)
        with pytest.raises(UpstreamTimeout, match=words):
            await asking

    async def test_progress_extends_the_time_up_to_its_limit(self, world, clock):
        world.answers = [hang] * 2
        progress = ("tools/call", {"name": "x", "_meta": {"progressToken": 1}})
        asking = asyncio.create_task(world.ask(*progress))
        await settled()
        await clock.passes(30.0)
        world.received[0][3].notified("notifications/progress", {"progressToken": 1, "progress": 1})
        await clock.passes(59.9)
        once = asking.done()
        await clock.passes(0.2)
        with pytest.raises(UpstreamTimeout, match=r"within 60 s of its last report of progress; it was told"):
            await asking
        asking = asyncio.create_task(world.ask(*progress))
        await settled()
        for _ in range(3):
            await clock.passes(30.0)
            world.received[1][3].notified("notifications/progress", {"progressToken": 1, "progress": 1})
        await clock.passes(10.1)
        with pytest.raises(
            UpstreamTimeout, match=r"within 100 s \(limits.tool_timeout_max\), though it reported progress"
        ):
            await asking

        assert once is False

    async def test_call_whose_session_could_not_be_opened_in_time_says_so(self, world, clock):
        world.told.members[0].leave.set()
        asking = asyncio.create_task(world.ask(seconds=0.5))
        await settled()
        await clock.passes(0.6)
        with pytest.raises(UpstreamTimeout, match=r"within 0\.5 s; no session could be opened in that time"):
            await asking

        assert world.told.suspected == [None]

    async def test_call_that_waited_for_its_turn_says_that_the_server_is_busy(self, clock):
        world = World(concurrency=1)
        world.answers = [hang]
        first = asyncio.create_task(world.ask())
        await settled()
        waiting = asyncio.create_task(world.ask("prompts/get", {"name": "p"}, seconds=5.0))
        await settled()
        await clock.passes(5.1)
        with pytest.raises(UpstreamTimeout) as late:
            await waiting
        first.cancel()

        assert late.value.message == (
            "server 'up' is busy: prompts/get of 'p' waited 5 s for its turn, and 1 other requests are running; "
            "call again later"
        )
        assert world.told.suspected == []


class TestTurns:
    async def test_calls_beyond_the_limit_wait_and_how_long_is_measured(self, monkeypatch):
        now = [1000.0]
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
        world = World(concurrency=1)
        may = asyncio.Event()

        async def answer():
            await may.wait()
            return {}

        world.answers = [answer, {}]
        asking = [asyncio.create_task(world.ask()) for _ in range(2)]
        await settled()
        running = (len(world.received), world.gate.waiting)
        now[0] += 2.5
        may.set()
        await asyncio.gather(*asking)

        assert running == (1, 1)
        assert world.told.queued_for == [("up", 2.5)]
        assert (world.gate.inside, world.told.uses) == (0, 2)

    async def test_call_behind_a_full_queue_is_refused(self):
        world = World(concurrency=1, queue=1)
        world.answers = [hang]
        asking = [asyncio.create_task(world.ask()) for _ in range(2)]
        await settled()
        with pytest.raises(UpstreamUnavailable) as refused:
            await world.ask(caller=Nobody(modern=False))
        for each in asking:
            each.cancel()

        assert refused.value.message == (
            "server 'up' is not available: 1 calls are already waiting for it; call again later"
        )

    async def test_principal_has_a_share_of_the_queue(self):
        world = World(concurrency=1, queue=4, rule=ShareRule(0.5))
        world.answers = [hang]
        asking = [asyncio.create_task(world.ask()) for _ in range(3)]
        await settled()
        with pytest.raises(
            UpstreamUnavailable, match=r"'ann' already has 2 of the 4 places in the queue of server 'up'"
        ):
            await world.ask()
        bob = asyncio.create_task(world.ask(caller=Nobody(modern=False, principal=Principal("bob"))))
        await settled()
        assert world.gate.waiting == 3
        asking.pop().cancel()
        await settled()
        again = asyncio.create_task(world.ask())
        await settled()
        assert world.gate.waiting == 3
        for each in (*asking, bob, again):
            each.cancel()


async def test_users_are_waited_for_until_the_last_one_has_left():
    users = Users()
    await users.over()
    with users:
        with users:
            waiting = asyncio.create_task(users.over())
            await settled()
        await settled()
        before = (bool(users), waiting.done())
    await settled()

    assert before == (True, False)
    assert (bool(users), waiting.done()) == (False, True)
