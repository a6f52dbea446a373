"""One server as the rest of the proxy sees it: what it offers and knows, and whom its changes are told."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import ANYBODY, NOBODY, Nobody, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.transport.transport_interface import PeerError
from gateway.proxy.upstream.server_lists import ListCache
from gateway.proxy.upstream.upstream import Upstream
from tests.gateway.proxy.transport.kept_log import settled

pytestmark = pytest.mark.anyio
CONFIG = UpstreamConfig("up", command="c", start="lazy")
OFFERS = {"tools": {"listChanged": True}, "resources": {}, "tasks": {}}
TOOL = {"name": "t", "inputSchema": {"type": "object"}}


class Link:
    """The transport to a server of the handshake era that is not there."""

    first_number = 0
    unread = ""

    def __init__(self, session):
        self.session = session
        self.closed = asyncio.Event()
        self.asked = []
        self.answers = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": OFFERS,
                "serverInfo": {"name": "s", "version": "1"},
                "instructions": "use it well",
            },
            "tools/list": {"tools": [TOOL, {"name": "bad", "inputSchema": {"type": "string"}}]},
            "resources/list": {"resources": [{"uri": "x:1", "name": "one"}]},
            "resources/templates/list": {"resourceTemplates": []},
        }

    def use_version(self, version):
        pass

    async def request(self, method, params, pending=None, **more):
        self.asked.append(method)
        await anyio.lowlevel.checkpoint()
        if method == "server/discover":
            raise PeerError({"code": -32601, "message": "no such method"})
        return self.answers.get(method, {})

    async def notify(self, method, params=None):
        self.asked.append(method)


class Client:
    """A client of the handshake era that can be asked."""

    def __init__(self, principal=ANYBODY):
        self.capabilities, self.log_level = {"roots": {}}, None
        self.principal = principal
        self.times_heard, self.idle_since = 0, None

    async def asked(self, method, params):
        return {}

    def call(self):
        made = Nobody(modern=False, principal=self.principal, capabilities=self.capabilities)
        made.session = self
        return made


class World:
    """One server, and who hears of its changes."""

    def __init__(self, config=CONFIG, cache=None, common=None):
        self.links, self.heard = [], []
        self.it = Upstream(
            config, LimitsConfig(start_timeout=60.0), Metrics(), self._connect, self, ShareRule(), cache, common
        )

    @asynccontextmanager
    async def _connect(self, session):
        self.links.append(Link(session))
        yield self.links[-1]

    def upstream_changed(self, server, kind, session, owner=None):
        self.heard.append((server, kind, session))

    def resource_updated(self, server, uri):
        self.heard.append((server, uri))

    def own_resource_updated(self, server, params, session):
        self.heard.append((server, params, session))

    @asynccontextmanager
    async def running(self, *, up=True):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.it.run)
            await settled()
            if up:
                await self.it.supervisor.want()
            yield
            self.it.stop()
            await self.it.ended()

    async def own(self, client=None):
        """The link of a client's own session."""
        client = client or Client()
        await self.it.selector.for_call(client.call(), "tools/call")
        return client, self.links[-1]


class TestOffers:
    async def test_server_offers_what_it_listed_until_the_end_and_calls_nobody_before_it_is_wanted(self):
        world = World()
        before = (world.it.up, world.it.available, world.it.was_up, world.it.known("tools"), world.it.instructions)
        async with world.running(up=False):
            assert not world.it.available
            await world.it.supervisor.want()
            now = (world.it.up, world.it.available, world.it.was_up, world.it.instructions, world.it.sessions())
            counts = [world.it.count(kind) for kind in ("tools", "prompts", "resources")]
            offered = world.it.offers

        assert before == (False, False, False, None, None)
        assert now == (True, True, True, "use it well", 1)
        assert counts == [1, 0, 1]
        assert offered == OFFERS
        assert list(world.it.invalid_tools) == ["bad"]
        assert (world.it.up, world.it.count("tools"), world.it.was_up) == (False, 0, True)
        assert [each["name"] for each in world.it.known("tools").items] == ["t"]
        assert World().it.offers == {}

    async def test_sleeping_server_still_offers_what_it_listed(self):
        world = World(replace(CONFIG, idle_stop=1.0))
        async with world.running():
            client, _ = await world.own()
            world.it.supervisor.stop_idle(world.it.supervisor.main)
            await settled()
            assert (world.it.up, world.it.available, world.it.count("tools"), world.it.sessions()) == (
                False,
                True,
                0,
                0,
            )
            assert world.it.selector.own(client) is None

    async def test_next_run_of_the_gateway_offers_what_the_last_one_knew_until_the_server_has_come_up(self, tmp_path):
        cache = ListCache(tmp_path)
        async with World(cache=cache).running():
            pass
        world = World(cache=cache)
        before = (
            world.it.available,
            world.it.instructions,
            len(world.it.known("tools").items),
            world.it.count("tools"),
        )
        async with world.running():
            assert world.it.earlier is None

        assert before == (True, "use it well", 1, 0)
        assert World(replace(CONFIG, args=("other",)), cache).it.earlier is None


class TestChanges:
    async def test_changed_list_is_told_to_all_or_to_the_client_whose_session_reported_it(self, clock):
        world = World()
        async with world.running():
            (main,) = world.links
            client, own = await world.own()
            world.heard.clear()
            own.session.notified("notifications/tools/list_changed", {})
            mine = [*world.heard]
            world.heard.clear()
            main.session.notified("notifications/tools/list_changed", {})
            await settled()
            everybodys = [*world.heard]

        assert mine == [("up", "tools", client)]
        assert everybodys == [("up", "tools", None)]
        assert main.asked.count("tools/list") == 2

    async def test_changed_list_of_the_only_client_is_everybodys(self, clock):
        world = World()
        client = Client()
        world.it.supervisor.adopt(client)
        async with world.running():
            world.heard.clear()
            world.links[0].session.notified("notifications/prompts/list_changed", {})
            await settled()

            assert world.heard == [("up", "prompts", None)]

    async def test_changed_resource_is_told_to_those_who_watch_it_there(self):
        world = World()
        async with world.running():
            client, own = await world.own()
            world.heard.clear()
            own.session.notified("notifications/resources/updated", {"uri": "x:1"})
            for params in ({"uri": "x:1"}, {"uri": 7}, {}):
                world.links[0].session.notified("notifications/resources/updated", params)

            assert world.heard == [("up", {"uri": "x:1"}, client), ("up", "x:1")]

    async def test_server_that_begins_to_report_changes_is_listed_again(self, clock):
        world = World()
        async with world.running():
            _client, own = await world.own()
            for link in (own, world.links[0]):
                link.session.notified("notifications/subscriptions/acknowledged", {})
                await settled()
                assert world.links[0].asked.count("tools/list") == 1 + (link is not own)

    async def test_server_that_comes_and_goes_is_told_so(self):
        world = World()
        async with world.running():
            up = [*world.heard]
        assert up == [("up", None, None)]
        assert world.heard == [("up", None, None)] * 2

    async def test_tools_are_listed_again_on_every_session_when_others_may_be_shown(self, clock):
        world = World()
        async with world.running():
            client, _own = await world.own()
            (member,) = world.it.selector.members()
            await member.listing.get("tools")
            world.heard.clear()
            world.it.list_again()
            await settled()
            await member.listing.get("tools")

        assert ("up", "tools", client) in world.heard
        assert [link.asked.count("tools/list") for link in world.links] == [2, 2]


class TestCallers:
    async def test_task_is_that_of_who_made_it_on_the_session_that_serves_them(self):
        world = World()
        async with world.running():
            client, own = await world.own()
            for link, caller in ((world.links[0], NOBODY), (own, client.call())):
                link.answers["tools/call"] = {"task": {"taskId": f"of {link is own}", "status": "working"}}
                await link.session.request("tools/call", {"name": "t", "task": {}}, caller)
            has = [
                [world.it.has_task(f"of {own}", caller) for own in (False, True)] for caller in (NOBODY, client.call())
            ]

        assert has == [[True, False], [False, True]]
        assert not World().it.has_task("of False", NOBODY)

    async def test_sessions_end_with_their_clients(self):
        world = World()
        async with world.running():
            client, _ = await world.own()
            before = world.it.sessions()
            world.it.release(client)
            await settled()

            assert (before, world.it.sessions()) == (2, 1)

    @pytest.mark.parametrize(
        ("method", "capabilities", "aside"),
        [("tools/call", {"roots": {}}, True), ("tools/call", {}, False), ("prompts/get", {"roots": {}}, False)],
    )
    async def test_call_of_a_modern_client_that_may_be_asked_runs_aside(self, method, capabilities, aside):
        world = World()
        caller = Nobody(modern=True, capabilities=capabilities)
        async with world.running():
            assert await world.it.runs_aside(method, {"name": "t"}, caller) is aside
            async with world.it.lease(caller, {}) as member:
                assert (bool(world.it.used), member.session is not world.links[0].session) == (True, True)
            assert not world.it.used

    async def test_resource_that_a_lent_session_gave_is_read_there(self):
        world = World()
        caller = Nobody(modern=True, capabilities={"roots": {}})
        async with world.running():
            async with world.it.lease(caller, {}) as member:
                pass
            world.it.given.note({"content": [{"type": "resource_link", "uri": "x:9"}]}, caller.principal, member)
            assert await world.it.runs_aside("resources/read", {"uri": "x:9"}, caller)
            async with world.it.lease(caller, {"uri": "x:9"}) as again:
                assert again is member

    async def test_lists_are_learned_while_the_server_is_kept(self):
        world = World()
        async with world.running():
            await world.it.learn(("tools",), Client().call())
            assert world.it.sessions() == 2
            assert not world.it.used


class Own:
    """The upstreams of principals that have one of their own."""

    def __init__(self, *upstreams):
        self._upstreams, self.stopped, self.swept = upstreams, False, False

    def all(self):
        return self._upstreams

    def stop(self):
        self.stopped = True
        for each in self._upstreams:
            each.stop()

    async def sweep(self):
        self.swept = True


async def test_principals_with_an_upstream_of_their_own_use_no_other_and_it_ends_with_the_common_one():
    common = World()
    mine = World(common=common.it)
    own = Own(mine.it)
    shares = common.it.serves(Principal("ann"))
    common.it.separate(own)
    serves = [common.it.serves(each) for each in (Principal("ann"), ANYBODY)]
    client = Client(Principal("ann", alone=True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mine.it.run)
        async with common.running():
            await mine.it.supervisor.want()
            await mine.own(client)
            sessions = common.it.sessions()
            common.it.release(client)
            await settled()
            released = common.it.sessions()
            mine.heard.clear()
            common.it.list_again()
            with mine.it.used:
                waiting = asyncio.create_task(common.it.unused())
                await settled()
                used = waiting.done()
            await waiting
            assert mine.it.dispatcher.gate is common.it.dispatcher.gate

    assert (shares, serves) == (True, [False, True])
    assert (sessions, released, used) == (3, 2, False)
    assert (own.stopped, own.swept) == (True, True)
    assert mine.it.supervisor.ended.is_set()
