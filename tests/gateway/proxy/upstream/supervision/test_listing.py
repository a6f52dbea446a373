"""How long a session's lists are kept, what bounds them, and when its server counts as alive."""

import asyncio
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest

from gateway.errors import UpstreamUnavailable
from gateway.proxy.transport.transport_interface import (
    LinkLost,
    MaybeForgotten,
    NoAnswer,
    PeerError,
    SessionForgotten,
    Unfit,
)
from gateway.proxy.upstream.supervision import listing as listing_module
from gateway.proxy.upstream.supervision.listing import EMPTY
from gateway.proxy.upstream.supervision.session_member import SessionMember, tell_level, why_silent
from tests.cases import each_of
from tests.gateway.proxy.upstream.supervision.standin_session import (
    NO_SUCH,
    REFUSED,
    TELLS,
    Server,
    listing_of,
    member_of,
    named,
    tools,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(time=1000.0)
    monkeypatch.setattr(listing_module, "monotonic", lambda: now.time)
    return now


async def test_list_is_kept_until_its_server_says_that_it_changed(clock):
    server = Server(tools=TELLS)
    server.pages["tools/list"] = tools("a")
    lists = listing_of(server)
    first = await lists.get("tools")
    clock.time += 1e9
    kept, asked = await lists.get("tools"), len(server.asked)
    lists.forget("tools")
    server.pages["tools/list"] = tools("b")
    old, is_open, at_hand = lists.known("tools"), lists.is_open("tools"), lists.at_hand("tools")

    assert (named(first), kept, asked) == (["a"], first, 1)
    assert (old, is_open, at_hand) == (first, True, None)
    assert named(await lists.get("tools")) == ["b"]
    assert not lists.is_open("tools")


async def test_list_of_a_server_that_does_not_promise_to_say_so_is_kept_for_a_second(clock):
    server = Server(tools={"listChanged": "yes"})
    server.pages["tools/list"] = tools("a")
    lists = listing_of(server)
    for seconds in (0.0, 0.9, 0.1):
        clock.time += seconds
        await lists.get("tools")

    assert len(server.asked) == 2
    # It is old, but nobody has said that it changed.
    clock.time += 2
    assert not lists.is_open("tools")


async def test_requests_for_a_list_at_the_same_time_share_one_fetch_and_a_change_during_it_costs_another(clock):
    server = Server(tools=TELLS)
    server.pages["tools/list"] = tools("a")
    lists = listing_of(server)
    await asyncio.gather(*(lists.get("tools") for _ in range(5)))
    shared = len(server.asked)
    lists.forget("tools")
    server.hear = lambda: lists.forget("tools")
    await lists.get("tools")
    server.hear = lambda: None
    await lists.get("tools")
    await lists.get("tools")

    assert (shared, len(server.asked)) == (1, 3)


async def test_doubted_list_is_read_again_and_does_not_count_as_incomplete_and_a_changed_one_still_does(clock):
    server = Server(tools=TELLS, prompts=TELLS)
    server.pages = {"tools/list": tools("a"), "prompts/list": {"prompts": [{"name": "p"}]}}
    lists = listing_of(server)
    await lists.get("tools")
    await lists.get("prompts")
    lists.forget("prompts")
    lists.doubt()

    assert [lists.is_open(kind) for kind in ("tools", "prompts", "resources")] == [False, True, True]
    assert [lists.at_hand(kind) for kind in ("tools", "prompts")] == [None, None]
    await lists.get("tools")
    assert [method for method, _ in server.asked] == ["tools/list", "prompts/list", "tools/list"]


async def test_change_of_resources_is_one_of_their_templates_too_and_of_nothing_else(clock):
    server = Server(resources=TELLS, tools=TELLS)
    server.pages = {
        "tools/list": tools("a"),
        "resources/list": {"resources": [{"uri": "x:1", "name": "one"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "y:{n}", "name": "two"}]},
    }
    lists = listing_of(server)
    for kind in ("tools", "resources", "templates"):
        await lists.get(kind)
    held = [lists.holds_uri(uri) for uri in ("x:1", "y:7", "z:1")]
    lists.forget("resources")

    assert held == [True, True, False]
    assert [lists.is_open(kind) for kind in ("tools", "resources", "templates")] == [False, True, True]
    assert (lists.holds("tools", "a"), lists.holds("tools", "b"), lists.find("prompts", "a")) == (True, False, None)


async def test_what_a_server_does_not_offer_is_empty_and_not_asked_for():
    server = Server(tools=None)
    lists = listing_of(server)

    assert [await lists.get(kind) for kind in ("tools", "prompts", "templates")] == [EMPTY] * 3
    assert (server.asked, lists.may_hold_tool("a")) == ([], False)
    server.capabilities["tools"] = TELLS
    assert lists.may_hold_tool("a")
    server.pages["tools/list"] = tools("a")
    await lists.get("tools")
    assert [lists.may_hold_tool(each) for each in ("a", "b")] == [True, False]


async def test_pages_are_read_to_the_last_and_the_first_one_s_other_fields_are_kept():
    server = Server(tools=TELLS)
    pages = {
        None: tools("a", nextCursor="2", ttlMs=5, _meta=[]),
        "2": tools("b", nextCursor="3", ttlMs=6),
        "3": tools("c", nextCursor="2"),
    }
    server.pages["tools/list"] = pages.get
    listed = await listing_of(server).get("tools")

    assert (named(listed), listed.around) == (["a", "b", "c"], {"ttlMs": 5})
    assert [cursor for _, cursor in server.asked] == [None, "2", "3"]


async def test_server_that_sends_the_same_page_for_every_cursor_lists_it_once():
    server = Server(tools=TELLS)
    server.pages["tools/list"] = lambda cursor: tools("a", nextCursor=f"{cursor}+" if cursor != "None++" else None)

    assert named(await listing_of(server).get("tools")) == ["a"]


@pytest.mark.parametrize(
    ("each", "pages", "why"),
    [
        (1, 99, None),
        (1, 100, "lists too many tools: expected at most 5000, in 100 pages"),
        (2500, 2, "in more than 100000 bytes"),
        (2600, 3, "lists too many tools"),
    ],
)
async def test_lists_are_bounded_in_pages_items_and_bytes(each, pages, why):
    server = Server(tools=TELLS)

    def page(cursor):
        number = int(cursor or 0)
        more = {"nextCursor": str(number + 1)} if number + 1 < pages + (why is not None) else {}
        return tools(*(f"{number}-{n}" for n in range(each)), **more)

    server.pages["tools/list"] = page
    lists = listing_of(server, result_bytes=100_000 if why is not None and "bytes" in why else 10_000_000)
    if why is None:
        assert len((await lists.get("tools")).items) == each * pages
        return
    with pytest.raises(UpstreamUnavailable, match=f"server 'up' .*{why}"):
        await lists.get("tools")
    assert lists.known("tools") is None


async def test_list_that_a_server_promises_and_does_not_know_is_empty_and_another_error_is_one(caplog):
    server = Server(tools=TELLS, prompts=TELLS)
    server.pages = {"tools/list": NO_SUCH, "prompts/list": REFUSED}
    lists = listing_of(server)

    assert named(await lists.get("tools")) == []
    assert "refuses tools/list as an unknown method" in caplog.text
    with pytest.raises(PeerError, match="no"):
        await lists.get("prompts")
    server.pages["prompts/list"] = lambda cursor: NO_SUCH if cursor else {"prompts": [], "nextCursor": "2"}
    with pytest.raises(PeerError, match="no such method"):
        await lists.get("prompts")


async def test_tools_alone_are_screened():
    server = Server(tools=TELLS, prompts=TELLS)
    server.pages = {"tools/list": tools("a", "b"), "prompts/list": {"prompts": [{"name": "p"}]}}
    lists = listing_of(server, screen=lambda items: tuple(items[1:]))

    assert (named(await lists.get("tools")), named(await lists.get("prompts"))) == (["b"], ["p"])


async def test_modern_session_keeps_lists_for_the_latest_eight_sets_of_capabilities():
    server = Server(modern=True, tools=TELLS)
    member = SessionMember(server, listing_of(server))
    made = [member.listing_for({"n": {"v": number}}) for number in range(8)]
    again = member.listing_for({"n": {"v": 0}})
    member.listing_for({"n": {"v": 8}})

    assert again is made[0]
    assert member.listing_for({"n": {"v": 0}}) is made[0]
    assert member.listing_for({"n": {"v": 1}}) is not made[1]
    assert member.listing_for({}) is member.listing
    server.modern = False
    assert member.listing_for({"n": {"v": 0}}) is member.listing


async def test_end_of_a_connection_is_one_failure_however_many_calls_it_fails():
    member, server = member_of()
    before = [member.note_failure() for _ in range(2)]
    server.transport.closed.set()

    assert before == [True, True]
    assert [member.note_failure() for _ in range(3)] == [True, False, False]


async def test_session_is_alive_until_its_connection_is_over_or_it_is_to_leave():
    member, server = member_of()
    leaving, _ = member_of()
    leaving.leave.set()
    alive = member.alive
    server.transport.closed.set()

    assert (alive, member.alive, leaving.alive) == (True, False, False)


async def test_server_is_told_a_log_level_once_and_the_lowest_of_those_that_were_wanted():
    member, server = member_of(logging={})
    for level in ("warning", "error", None, "info", "info"):
        await tell_level(member, level)
    for other in (member_of(), member_of(modern=True, logging={})):
        await tell_level(other[0], "info")
        assert other[1].asked == []
    server.pages["logging/setLevel"] = REFUSED
    await tell_level(member, "debug")

    assert server.asked == [("logging/setLevel", each) for each in ("warning", "info", "debug")]


@each_of(
    ("pages", "modern", "capabilities", "silence", "pinged"),
    [
        ({}, False, {}, None, True),
        ({"ping": NO_SUCH}, False, {}, None, True),
        ({"server/discover": REFUSED}, True, {}, None, True),
        # It refuses even a ping, and its list.
        ({"ping": REFUSED, "tools/list": REFUSED}, False, {"tools": {}}, SessionForgotten, True),
        # Its answers to pings say nothing; its list does.
        ({"ping": REFUSED}, False, {"tools": {}}, None, False),
        ({"ping": NoAnswer("no")}, False, {"tools": {}}, None, False),
        ({"ping": MaybeForgotten("no")}, False, {"tools": {}}, None, False),
        ({"ping": MaybeForgotten("no")}, False, {}, SessionForgotten, True),
        ({"ping": NoAnswer("no"), "tools/list": Unfit("too long")}, False, {"tools": {}}, None, True),
        ({"ping": NoAnswer("no"), "tools/list": NoAnswer("no")}, False, {"tools": {}}, NoAnswer, True),
        ({"ping": LinkLost("it broke")}, False, {"tools": {}}, LinkLost, True),
    ],
)
async def test_server_lives_if_it_answers_a_ping_or_else_lists(pages, modern, capabilities, silence, pinged):
    member, server = member_of(modern=modern, **capabilities)
    server.pages = pages
    found = await why_silent(member, 30)
    asked = [method for method, _ in server.asked]

    assert type(found) is (silence or type(None))
    assert member.pinged is pinged
    if not pinged:
        server.asked.clear()
        await why_silent(member, 30)
        assert [method for method, _ in server.asked] == ["tools/list"]
    assert asked[0] == ("server/discover" if modern else "ping")


async def test_server_that_answers_nothing_in_time_is_silent():
    member, server = member_of()

    async def hang(*_):
        await anyio.sleep_forever()

    server.request = hang
    assert isinstance(await why_silent(member, 0.01), TimeoutError)
