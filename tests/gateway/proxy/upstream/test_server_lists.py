"""What one server lists as a certain caller sees it: which session is asked, how long, and what is shown meanwhile."""

import asyncio
from contextlib import asynccontextmanager

import anyio
import pytest

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.proxy.caller import Nobody
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.server_lists import CallerLists, EarlierRun
from gateway.proxy.upstream.supervision.listing import Listed
from tests.gateway.proxy.transport.kept_log import settled
from tests.gateway.proxy.upstream.supervision.standin_session import REFUSED, TELLS, member_of, named, tools

pytestmark = pytest.mark.anyio
ANN = Nobody(modern=False)
EARLIER = EarlierRun({"tools": Listed(({"name": "old"},), {})}, True, {"name": "e"}, None)


def server_of(*listed, modern=False, **capabilities):
    """A session that lists these tools, two prompts and a resource."""
    member, server = member_of(modern=modern, tools=TELLS, prompts=TELLS, resources=TELLS, **capabilities)
    server.info = {"name": "s"}
    server.pages = {
        "tools/list": tools(*listed),
        "prompts/list": {"prompts": [{"name": f"p-{each}"} for each in listed]},
        "resources/list": {"resources": [{"uri": f"x:{each}", "name": each} for each in listed]},
        "resources/templates/list": {"resourceTemplates": []},
    }
    return member


class World:
    """One server: supervisor, selector and dispatcher in one."""

    def __init__(self, *, earlier=None, is_common=True, limits=None):
        self.main = self.last = None
        self.own, self.asleep, self.lent = None, False, []
        self.is_back = asyncio.Event()
        self.given_up, self.suspected, self.changes, self.opened = [], [], 0, 0
        self.given = GivenUris()
        self.it = CallerLists(
            UpstreamConfig("up", command="c"),
            limits or LimitsConfig(start_timeout=60.0, list_wait=10.0),
            *(self, self, self, self.given),
            on_change=self._changed,
            earlier=lambda: earlier,
            is_common=is_common,
        )

    def up(self, member):
        self.main = self.last = member
        self.is_back.set()

    async def want(self):
        await self.is_back.wait()
        return self.main

    def why_away(self):
        return "it is still starting"

    def aside(self, caller):
        return self.own

    def listing(self, member, caller):
        return member.listing

    async def for_lists(self, caller):
        return self.own or self.main

    @asynccontextmanager
    async def open_aside(self, caller):
        self.opened += 1
        yield

    def lends(self, member):
        return member in self.lent

    def suspect(self, member):
        self.suspected.append(member)

    def give_up(self, member, error):
        self.given_up.append((member, str(error)))
        self.main = self.later

    def unavailable(self, cause):
        return UpstreamUnavailable(cause, server="up")

    def _changed(self):
        self.changes += 1


@pytest.fixture
async def world():
    return World()


class TestGetting:
    async def test_list_is_that_of_the_callers_own_session_else_of_the_main_one(self, world):
        world.up(server_of("a", modern=True))
        main = await world.it.get("tools", ANN)
        world.own = server_of("b")
        before = world.it.at_hand("tools", ANN)
        own = await world.it.get("tools", ANN)

        assert (named(main.listed), main.modern, main.info) == (["a"], True, {"name": "s"})
        assert (named(own.listed), own.modern) == (["b"], False)
        assert (before, world.it.at_hand("tools", ANN)) == (None, own)
        assert World().it.at_hand("tools", ANN) is None

    async def test_sleeping_server_is_not_woken_for_what_it_has_listed(self, world):
        member = server_of("a")
        world.up(member)
        await world.it.get("tools", ANN)
        world.asleep, world.main = True, None
        world.is_back.clear()

        assert named((await world.it.get("tools", ANN)).listed) == ["a"]
        waiting = asyncio.create_task(world.it.get("prompts", ANN))
        await settled()
        assert not waiting.done()
        world.up(member)
        assert len((await waiting).listed.items) == 1

    async def test_list_of_an_earlier_run_is_shown_until_there_is_another(self):
        world = World(earlier=EARLIER)
        found = await world.it.get("tools", ANN)
        world.up(server_of("a"))

        assert (named(found.listed), found.modern, found.info) == (["old"], True, {"name": "e"})
        assert len((await world.it.get("prompts", ANN)).listed.items) == 1

    async def test_first_start_is_waited_for_by_all_together_and_a_later_one_only_for_a_moment(self, world, clock):
        asking = [asyncio.create_task(world.it.get("tools", ANN))]
        await settled()
        await clock.passes(4.0)
        asking.append(asyncio.create_task(world.it.get("tools", ANN)))
        await settled()
        seen = []
        for seconds in (5.9, 0.1):
            await clock.passes(seconds)
            seen.append([each.done() for each in asking])
        asking.append(asyncio.create_task(world.it.get("tools", ANN)))
        await settled()
        for seconds in (1.9, 0.1):
            await clock.passes(seconds)
            seen.append(asking[2].done())
        for each in asking:
            with pytest.raises(UpstreamUnavailable, match="it is still starting"):
                await each

        assert seen == [[False, False], [True, True], False, True]

    async def test_lists_wait_no_longer_than_the_operator_says(self, clock):
        world = World(limits=LimitsConfig(list_wait=1.0))
        seen = []
        for _ in range(2):
            asking = asyncio.create_task(world.it.get("tools", ANN))
            await settled()
            for seconds in (0.9, 0.1):
                await clock.passes(seconds)
                seen.append(asking.done())
            with pytest.raises(UpstreamUnavailable):
                await asking

        assert seen == [False, True, False, True]

    @pytest.mark.parametrize("failure", [REFUSED, NoAnswer("no")])
    async def test_server_that_does_not_list_says_why(self, world, failure):
        member = server_of("a")
        world.up(member)
        member.session.pages["tools/list"] = failure
        with pytest.raises(UpstreamUnavailable, match="no"):
            await world.it.get("tools", ANN)

        assert (world.given_up, world.suspected) == ([], [])

    @pytest.mark.parametrize(("sent", "is_repeated"), [(False, True), (True, False)])
    async def test_list_that_was_not_asked_for_is_asked_for_once_more_on_another_session(
        self, world, sent, is_repeated
    ):
        first, world.later = server_of(), server_of("a")
        world.up(first)
        first.session.pages["tools/list"] = LinkLost("it broke", sent=sent)
        if is_repeated:
            assert named((await world.it.get("tools", ANN)).listed) == ["a"]
        else:
            with pytest.raises(UpstreamUnavailable, match="it broke"):
                await world.it.get("tools", ANN)
        assert world.given_up == [(first, "it broke")]

    async def test_list_is_asked_for_a_second_time_only_once(self, world):
        first, world.later = server_of(), server_of()
        world.up(first)
        for each, words in ((first, "it broke"), (world.later, "it broke again")):
            each.session.pages["tools/list"] = LinkLost(words, sent=False)
        with pytest.raises(UpstreamUnavailable, match="it broke again"):
            await world.it.get("tools", ANN)

    async def test_server_that_hangs_is_suspected_and_what_it_listed_before_is_shown(self, world, clock):
        member = server_of("a")
        world.up(member)
        await world.it.get("tools", ANN)
        member.session.pages = dict.fromkeys(member.session.pages, lambda _: anyio.sleep_forever())
        member.listing.forget("tools")
        known, unknown = (asyncio.create_task(world.it.get(kind, ANN)) for kind in ("tools", "prompts"))
        await settled()
        seen = []
        for seconds in (2.9, 0.1, 56.9, 0.1):
            await clock.passes(seconds)
            seen.append((known.done(), unknown.done()))
        with pytest.raises(UpstreamUnavailable, match="it did not list its prompts in time"):
            await unknown

        assert seen == [(False, False), (True, False), (True, False), (True, True)]
        assert named((await known).listed) == ["a"]
        assert world.suspected == [member] * 2

    async def test_list_is_waited_for_no_longer_than_a_start(self, clock):
        world = World(limits=LimitsConfig(start_timeout=2.0))
        member = server_of("a")
        world.up(member)
        await world.it.get("tools", ANN)
        member.session.pages["tools/list"] = lambda _: anyio.sleep_forever()
        member.listing.forget("tools")
        asking = asyncio.create_task(world.it.get("tools", ANN))
        await settled()
        await clock.passes(2.0)

        assert asking.done()

    @pytest.mark.parametrize(("tells", "own", "changes"), [({}, False, 1), (TELLS, False, 0), ({}, True, 0)])
    async def test_change_that_the_server_did_not_report_is_noticed_on_the_main_list(
        self, world, clock, tells, own, changes
    ):
        member = server_of("a")
        member.session.capabilities["tools"] = tells
        world.up(server_of() if own else member)
        world.own = member if own else None
        await world.it.get("tools", ANN)
        member.listing.doubt()
        await world.it.get("tools", ANN)
        unchanged = world.changes
        member.session.pages["tools/list"] = tools("b")
        member.listing.doubt()
        await world.it.get("tools", ANN)

        assert (unchanged, world.changes) == (0, changes)

    async def test_lists_are_learned_on_a_session_that_knows_what_the_caller_can_do(self, world):
        member = server_of("a")
        world.up(member)
        await world.it.learn(("tools", "prompts"), ANN)

        assert world.opened == 1
        assert [method for method, _ in member.session.asked] == ["tools/list", "prompts/list"]


async def known(member):
    """The session, once all its lists are known."""
    for kind in ("tools", "prompts", "resources", "templates"):
        await member.listing.get(kind)
    return member


class TestNames:
    async def test_name_is_in_the_main_list_or_in_the_callers_own(self, world):
        assert world.it.may_have_tool("a", ANN)
        assert not world.it.holds("tools", "a", ANN)
        assert world.it.tool("a", ANN) is None
        world.up(await known(server_of("a")))
        main = [(world.it.holds("tools", each, ANN), world.it.may_have_tool(each, ANN)) for each in "ab"]
        aside = (world.it.holds_aside("tools", "a", ANN), world.it.tool_aside("a", ANN))
        world.own = server_of("b")
        unknown = world.it.may_have_tool("b", ANN)
        await known(world.own)

        assert main == [(True, True), (False, False)]
        assert aside == (False, None)
        assert unknown is False
        assert [world.it.holds("tools", each, ANN) for each in "abc"] == [True, True, False]
        assert [world.it.holds_aside("tools", each, ANN) for each in "ab"] == [False, True]
        assert [world.it.may_have_tool(each, ANN) for each in "abc"] == [True, True, False]
        assert [world.it.knows_tool_aside(each, ANN) for each in "ab"] == [False, True]
        assert world.it.tool_aside("b", ANN)["name"] == world.it.tool("b", ANN)["name"] == "b"
        assert world.it.tool("a", ANN)["name"] == "a"
        assert world.it.tool_aside("a", ANN) is None
        world.own.listing.forget("tools")
        assert not world.it.knows_tool_aside("b", ANN)
        assert world.it.may_have_tool("c", ANN)

    async def test_lists_of_one_principals_server_are_its_own(self):
        world, common = World(is_common=False), World()
        for each in (world, common):
            each.up(await known(server_of("a")))

        assert (world.it.holds_aside("tools", "a", ANN), common.it.holds_aside("tools", "a", ANN)) == (True, False)
        assert (world.it.holds_uri_aside("x:a", ANN), common.it.holds_uri_aside("x:a", ANN)) == (True, False)
        assert not world.it.holds_uri_aside("x:b", ANN)

    @pytest.mark.parametrize(
        ("params", "is_only"),
        [
            ({"name": "p-b"}, True),
            ({"name": "p-a"}, False),
            ({"name": "p-c"}, False),
            ({"uri": "x:b"}, True),
            ({"uri": "x:a"}, False),
            ({"uri": "x:c"}, False),
            ({}, False),
        ],
    )
    async def test_prompt_or_resource_may_be_in_the_callers_own_list_only(self, world, params, is_only):
        world.up(await known(server_of("a")))
        before = world.it.only_aside(params, ANN)
        world.own = await known(server_of("b"))
        found = world.it.only_aside(params, ANN)
        world.last = None

        assert (before, found, world.it.only_aside(params, ANN)) == (False, is_only, False)

    async def test_resource_is_read_where_it_was_given_while_that_session_is_lent(self, world):
        giver = server_of()
        world.given.note({"content": [{"type": "resource_link", "uri": "x:1"}]}, ANN.principal, giver)
        before = world.it.giver({"uri": "x:1"}, ANN)
        world.lent.append(giver)

        assert before is None
        assert world.it.giver({"uri": "x:1"}, ANN) is giver
        assert world.it.giver({"uri": "x:2"}, ANN) is None
        assert world.it.giver({"uri": 1}, ANN) is None
