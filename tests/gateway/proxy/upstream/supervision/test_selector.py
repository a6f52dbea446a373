"""Which session with a server serves which caller."""

from types import SimpleNamespace

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.proxy.caller import Nobody, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.transport.transport_interface import LinkLost
from gateway.proxy.upstream.session.negotiation import NoCommonEra, Terms
from gateway.proxy.upstream.supervision.selector import Selector
from tests.gateway.proxy.transport.kept_log import settled
from tests.gateway.proxy.upstream.supervision.standin_session import Opener, member_of

pytestmark = pytest.mark.anyio
ROOTS, CALL = {"roots": {}}, "tools/call"


class Client:
    """A client of the handshake era."""

    def __init__(self, log_level=None, **capabilities):
        self.capabilities, self.log_level = capabilities, log_level
        self.principal = Principal("ann", alone=True)
        self.times_heard, self.idle_since = 0, None


def by(session):
    """A request of this client."""
    made = Nobody(modern=False, principal=session.principal, capabilities=session.capabilities)
    made.session = session
    return made


def modern(**capabilities):
    return Nobody(modern=True, capabilities=capabilities)


class Supervised:
    """A server that is up, or sleeps until it is wanted."""

    def __init__(self, member, *, asleep=False):
        self._member = member
        self.main = None if asleep else member
        self.last = member
        self.adopted = None
        self.suspected = 0
        self.maintenance = SimpleNamespace(suspect=self._suspect)

    async def want(self):
        self.main = self._member
        return self.main

    def _suspect(self):
        self.suspected += 1


class World:
    """The sessions with one server."""

    def __init__(self, tasks, *, is_modern=False, asleep=False, begun=True, **config):
        self.main, self.server = member_of(modern=is_modern, logging={})
        self.opener = Opener(logging={})
        self.supervised = Supervised(self.main, asleep=asleep)
        config = UpstreamConfig("up", command="c", **config)
        self.it = Selector(config, self.supervised, self.opener, ShareRule())
        if begun:
            self.it.begin(tasks)


@pytest.fixture
async def world_of():
    async with anyio.create_task_group() as tasks:
        yield lambda **settings: World(tasks, **settings)
        tasks.cancel_scope.cancel()


class TestCalls:
    async def test_client_that_can_not_be_asked_shares_the_main_session(self, world_of):
        world, ann = world_of(), by(Client(experimental={}))

        assert world.it.at_once(ann, CALL) is await world.it.for_call(ann, CALL) is world.main
        assert world.it.at_once(modern(**ROOTS), CALL) is world.main
        assert (len(world.it), world.it.members(), world.opener.asked) == (1, [], [])

    @pytest.mark.parametrize("ability", ["elicitation", "roots", "sampling"])
    async def test_client_that_can_be_asked_has_a_session_of_its_own_from_its_first_call_on(self, world_of, ability):
        world, client = world_of(), Client(**{ability: {}})
        ann = by(client)
        first = [await world.it.for_call(ann, method) for method in ("prompts/get", "logging/setLevel")]
        before = (world.it.at_once(ann, "prompts/get"), world.it.at_once(ann, CALL), world.it.has_own(ann))
        own = await world.it.for_call(ann, CALL)

        assert first == [world.main] * 2
        assert before == (world.main, None, False)
        assert [own] == world.opener.members == world.it.members()
        assert world.opener.asked == [(Terms(("handshake",), {ability: {}}), client, None)]
        assert await world.it.for_call(ann, "prompts/get") is own
        assert world.it.at_once(ann, "prompts/get") is None
        assert world.it.own(client) is own
        assert world.it.has_own(ann)
        assert await world.it.for_lists(ann) is world.it.aside(ann) is own
        assert len(world.it) == 2

    async def test_session_is_shared_where_the_operator_says_so(self, world_of):
        world, ann = world_of(sessions="shared"), by(Client(**ROOTS))

        assert world.it.at_once(ann, CALL) is await world.it.for_call(ann, CALL) is world.main
        assert not await world.it.bridges(modern(**ROOTS))

    async def test_each_client_has_its_own_for_whatever_it_asks_where_the_operator_says_so(self, world_of):
        world, ann = world_of(sessions="per_client"), by(Client())

        assert await world.it.for_call(ann, "logging/setLevel") is world.main
        assert world.it.at_once(ann, "prompts/list") is None
        assert await world.it.for_call(ann, "prompts/list") is not world.main

    async def test_only_client_has_the_main_session_for_its_own(self, world_of):
        world, client = world_of(), Client("info", **ROOTS)
        world.supervised.adopted = client

        assert world.it.at_once(by(client), CALL) is await world.it.for_call(by(client), CALL) is world.main
        assert world.it.own(client) is world.main
        assert world.it.aside(by(client)) is None
        assert world.it.has_own(by(client))
        assert world.opener.asked == []

    async def test_sleeping_server_is_woken_for_a_call_and_for_lists(self, world_of):
        for wake in (lambda it: it.for_call(modern(), CALL), lambda it: it.for_lists(modern())):
            world = world_of(asleep=True)
            assert (world.it.at_once(modern(), CALL), len(world.it)) == (None, 0)
            assert await wake(world.it) is world.main

    async def test_server_that_speaks_only_the_modern_era_is_asked_once_for_the_other(self, world_of):
        world, ann = world_of(is_modern=True), by(Client(**ROOTS))
        world.opener.fails = NoCommonEra("only 2026", server="up")
        found = [await world.it.for_call(ann, CALL) for _ in range(2)]

        assert found == [world.main] * 2
        assert len(world.opener.asked) == 1
        assert world.it.at_once(ann, CALL) is world.main

    async def test_server_that_speaks_the_handshake_must_open_one(self, world_of):
        world = world_of()
        world.opener.fails = NoCommonEra("no", server="up")
        with pytest.raises(NoCommonEra):
            await world.it.for_call(by(Client(**ROOTS)), CALL)

    async def test_server_that_is_configured_as_modern_is_not_asked_for_another_era(self, world_of):
        world = world_of(is_modern=True, protocol="modern")

        assert await world.it.for_call(by(Client(**ROOTS)), CALL) is world.main
        assert world.opener.asked == []

    async def test_server_is_told_which_log_messages_the_client_wants(self, world_of):
        world = world_of()
        ann, bob = by(Client("info", **ROOTS)), by(Client("error"))
        own = await world.it.for_call(ann, CALL)
        await world.it.for_call(bob, CALL)

        assert own.session.asked == [("ping", None)] * 2 + [("logging/setLevel", "info")]
        assert world.server.asked == [("logging/setLevel", "error")]
        assert world.it.at_once(bob, CALL) is None

    async def test_own_session_that_is_over_is_not_used(self, world_of):
        world, client = world_of(), Client(**ROOTS)
        own = await world.it.for_call(by(client), CALL)
        own.session.transport.closed.set()

        assert await world.it.for_call(by(client), "prompts/get") is world.main
        assert world.it.aside(by(client)) is None
        assert await world.it.for_call(by(client), CALL) not in (own, world.main)

    async def test_session_ends_with_its_client_and_all_end_together(self, world_of):
        world, clients = world_of(), [Client(**ROOTS) for _ in range(3)]
        for each in clients:
            await world.it.for_call(by(each), CALL)
        world.it.release(clients[0])
        await settled()
        ended = [*world.opener.ended]
        world.it.close()
        await settled()

        assert ended == world.opener.members[:1]
        assert len(world.opener.ended) == 3


class TestBorrowing:
    @pytest.mark.parametrize(
        ("caller", "is_modern", "sessions", "bridges"),
        [
            (modern(**ROOTS), False, "auto", True),
            (modern(**ROOTS), False, "per_client", True),
            (modern(**ROOTS), False, "shared", False),
            (modern(**ROOTS), True, "auto", False),
            (modern(), False, "auto", False),
            (by(Client(**ROOTS)), False, "auto", False),
        ],
    )
    async def test_modern_client_that_can_be_asked_borrows_a_session_of_a_server_of_the_handshake_era(
        self, world_of, caller, is_modern, sessions, bridges
    ):
        world = world_of(is_modern=is_modern, sessions=sessions, asleep=True)

        assert await world.it.bridges(caller) is bridges
        if not bridges:
            assert world.it.aside(caller) is None

    async def test_borrowed_session_is_that_of_its_caller_s_lists(self, world_of):
        world, ann = world_of(asleep=True), modern(**ROOTS)
        assert world.it.aside(ann) is None
        async with world.it.lease(ann) as member:
            lent = (world.it.aside(ann), world.it.lends(member), world.it.members())
            assert await world.it.for_lists(ann) is member
        async with world.it.lease(ann, member) as again:
            pass

        assert lent == (member, True, [member])
        assert again is member is not world.main
        assert not world.it.lends(world.main)
        assert world.opener.asked == [(Terms(("handshake",), ROOTS), None, ann)]
        assert not world.it.has_own(ann)

    async def test_server_that_was_not_started_lends_nothing(self, world_of):
        world, client = world_of(begun=False), Client(**ROOTS)
        with pytest.raises(UpstreamUnavailable, match="server 'up' is not available: it has not been started"):
            async with world.it.lease(modern(**ROOTS)):
                pass

        assert (world.it.aside(modern(**ROOTS)), world.it.members(), world.it.lends(world.main)) == (None, [], False)
        assert (world.it.own(client), len(world.it)) == (None, 1)
        world.it.release(client)
        world.it.close()


class TestLists:
    @pytest.mark.parametrize(
        ("caller", "is_modern", "announced", "may"),
        [
            (modern(**ROOTS), True, (), True),
            (modern(**ROOTS), True, ("roots",), False),
            (modern(), True, (), False),
            (modern(experimental={}), True, (), False),
            (modern(**ROOTS), False, (), True),
            (by(Client(**ROOTS)), False, (), True),
            (by(Client(**ROOTS)), False, ("roots", "sampling"), False),
            (by(Client(**ROOTS, sampling={})), False, ("roots",), True),
        ],
    )
    async def test_lists_may_be_incomplete_where_the_server_was_not_told_of_all_that_a_caller_can_do(
        self, world_of, caller, is_modern, announced, may
    ):
        world = world_of(is_modern=is_modern)
        shared = world_of(is_modern=is_modern, sessions="shared")
        for each in (world, shared):
            each.server.announced = frozenset(announced)
        never_up = world_of()
        never_up.supervised.last = None

        assert world.it.may_list_more(caller) is may
        assert shared.it.may_list_more(caller) is (may and is_modern)
        assert not never_up.it.may_list_more(caller)

    async def test_lists_of_the_only_client_are_complete(self, world_of):
        world, client = world_of(), Client(**ROOTS)
        world.supervised.adopted = client

        assert not world.it.may_list_more(by(client))

    async def test_modern_server_lists_for_what_its_caller_can_be_asked(self, world_of):
        world = world_of(is_modern=True)
        lists = world.it.listing(world.main, modern(sampling={}, roots={}, experimental={}))

        assert lists is world.it.listing(world.main, modern(roots={}, sampling={}))
        assert lists is not world.it.listing(world.main, modern(roots={}))
        assert world.it.listing(world.main, modern(experimental={})) is world.main.listing

    async def test_session_is_open_while_somebody_lists_aside(self, world_of):
        world, ann = world_of(), modern(**ROOTS)
        async with world.it.open_aside(ann):
            assert world.it.aside(ann) in world.opener.members
        async with world.it.open_aside(by(Client(**ROOTS))):
            assert len(world.opener.members) == 2
        unasked = world_of(is_modern=True)
        async with unasked.it.open_aside(ann):
            assert unasked.opener.asked == []

    async def test_era_of_a_caller_s_requests_is_that_of_its_session(self, world_of):
        world, client = world_of(is_modern=True), Client(**ROOTS)
        before = await world.it.is_modern(by(client))
        await world.it.for_call(by(client), CALL)

        assert (before, await world.it.is_modern(by(client)), await world.it.is_modern(modern())) == (True, False, True)


class TestLevels:
    async def test_others_that_share_a_session_get_no_fewer_messages(self, world_of):
        world, client = world_of(), Client(**ROOTS)
        wanted = [world.it.level_for(modern(), level) for level in ("warning", "error", "info", "error")]
        own = await world.it.for_call(by(client), CALL)
        mine = [world.it.level_for(by(client), level) for level in ("debug", "error")]

        assert wanted == ["warning", "warning", "info", "info"]
        assert mine == ["debug", "error"]
        assert (world.main.told_level, own.told_level) == ("info", "error")
        assert world_of(asleep=True).it.level_for(modern(), "error") == "error"


class TestSuspicion:
    async def test_server_is_suspected_by_its_main_session_and_else_only_the_session(self, world_of):
        world, client = world_of(), Client(**ROOTS)
        own = await world.it.for_call(by(client), CALL)
        own.session.pages["ping"] = LinkLost("it broke")
        for member in (None, world.main):
            world.it.suspect(member)
        before = (world.supervised.suspected, own.alive)
        world.it.suspect(own)
        await settled()
        never = world_of(begun=False)
        never.it.suspect(own)

        assert before == (2, True)
        assert (world.supervised.suspected, world.opener.ended, never.supervised.suspected) == (2, [own], 1)
