"""Events of a session whose replica is gone, for a client that comes back to another one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.serve.mcp.event_streams import event_record, stream_name
from gateway.serve.mcp.http_sessions import LeftEvents
from gateway.shared import StoreBounds
from gateway.shared.shared_store import SharedStore
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import Direct, shared_in_memory

LARGE = StoreBounds(10_000_000, 10_000_000, 60.0)
pytestmark = pytest.mark.anyio


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


class Steps:
    """A tool that tells of so many steps, and then waits."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.go_on = anyio.Event()

    async def slow(self, _: Any, caller: Any) -> dict[str, Any]:
        for step in range(self.steps):
            caller.notified("notifications/progress", {"progress": step})
        await self.go_on.wait()
        return text("done")


def progress(events: list[dict[str, Any]]) -> list[int | None]:
    return [event.get("params", {}).get("progress") for event in events]


async def until_written(shared: SharedStore, session: Any, stream: int, number: int, owner: str = "anonymous") -> None:
    """Wait until the store has this event."""
    place = stream_name(session.headers["mcp-session-id"], stream)
    with anyio.fail_after(60):
        while True:
            found = await shared.find_alias("event", owner, [place], StoreBounds(1, 1, 60.0), depth=1)
            if found and found[0].id == f"{place}-{number}":
                return
            await anyio.sleep(0.01)


@asynccontextmanager
async def two_stores() -> AsyncGenerator[tuple[SharedStore, SharedStore, Direct]]:
    client = Direct(Memory())
    async with shared_in_memory(client) as one, shared_in_memory(client) as other:
        yield one, other, client


async def test_events_that_its_client_has_not_are_given_by_another_replica(servers, site_of):
    tool = Steps(3)
    servers.tool(tool.slow)
    async with two_stores() as (one, other, _):
        async with site_of(servers, endpoint_with={"shared": one}) as site:
            session = await site.session()
            async with session.stream("tools/call", {"name": "slow"}) as stream:
                await stream.event()
            # Nobody reads when the answer comes.
            tool.go_on.set()
            await until_written(other, session, 1, 4)
        async with site_of(servers, endpoint_with={"shared": other}) as site:
            session.http, session.url = await site.http(), site.url
            async with session.listen(**{"last-event-id": "1-1"}) as resumed:
                events = await resumed.events()
            async with session.listen(**{"last-event-id": "1-3"}) as again:
                last = await again.events()
            answers = [await coming_back(session, event_id) for event_id in ("1-4", "1-9", "2-0", "x", "-1-1")]
            site.principal = Principal("eve")
            foreign = await coming_back(session, "1-1")

    assert progress(events) == [1, 2, None]
    assert events[-1]["result"] == text("done")
    assert resumed.ids == ["1-2", "1-3", "1-4"]
    assert last == events[-1:]
    assert (answers, foreign) == ([404] * 5, 404)


async def coming_back(session: Any, event_id: str, **headers: str) -> int:
    async with session.listen(**{"last-event-id": event_id, **headers}) as stream:
        await stream.response.aread()
    return stream.response.status_code


async def test_answer_that_is_read_late_where_it_was_made_has_the_number_that_others_know(servers, site_of):
    tool = Steps(1)
    servers.tool(tool.slow)
    async with two_stores() as (one, other, _), site_of(servers, endpoint_with={"shared": one}) as site:
        session = await site.session()
        async with session.stream("tools/call", {"name": "slow"}) as stream:
            await stream.event()
        tool.go_on.set()
        await until_written(other, session, 1, 2)
        async with session.listen(**{"last-event-id": "1-1"}) as resumed:
            events = await resumed.events()

    assert resumed.ids == ["1-2"]
    assert events[-1]["result"] == text("done")


async def test_events_of_no_request_are_given_too(servers, site_of):
    async with two_stores() as (one, other, _):
        async with site_of(servers, endpoint_with={"shared": one}) as site:
            session = await site.session()
            async with session.listen() as stream:
                servers.change("tools")
                await stream.event()
                servers.change("prompts")
                await stream.event()
            await until_written(other, session, 0, 2)
        async with site_of(servers, endpoint_with={"shared": other}) as site:
            session.http, session.url = await site.http(), site.url
            async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
                events = await resumed.events()

    assert [event["method"] for event in events] == ["notifications/prompts/list_changed"]


async def test_events_with_a_gap_are_none(servers, site_of):
    async with two_stores() as (one, other, _):
        owner, session_id = "anonymous", "s"
        left = LeftEvents(other, 1.0, 60.0)
        for number in (1, 2, 4, 5):
            await one.keep_last("event", owner, event_record(session_id, 3, number, b"%d" % number), LARGE)

        found = {number: await left.after(owner, session_id, 3, number) for number in range(6)}

    assert found == {0: [], 1: [], 2: [], 3: [(4, b"4"), (5, b"5")], 4: [(5, b"5")], 5: []}


async def test_events_of_another_stream_to_which_the_name_leads_are_none(servers, site_of):
    async with two_stores() as (one, other, client):
        for session_id in ("s", "t"):
            for number in (1, 2):
                await one.keep_last("event", "ann", event_record(session_id, 3, number, session_id.encode()), LARGE)
        mine, theirs = (one._seals["event"].aliases("ann", stream_name(each, 3))[0] for each in "st")
        await client.execute_command("SET", mine, await client.execute_command("GET", theirs))

        assert await LeftEvents(other, 1.0, 60.0).after("ann", "s", 3, 1) == []
        assert await LeftEvents(other, 1.0, 60.0).after("ann", "t", 3, 1) == [(2, b"t")]


async def test_more_events_than_are_kept_of_a_stream_are_none(servers, site_of):
    async with two_stores() as (one, other, _):
        left = LeftEvents(other, 1.0, 60.0)
        log = left.log("ann", "s")
        for number in range(1, 1100):
            log.write(1, number, b"x")
            if not number % 500:
                await written(one, number)
        await written(one, 1099)

        found = [len(await left.after("ann", "s", 1, after)) for after in (0, 74, 75, 1098)]

    assert found == [0, 0, 1024, 1]


async def written(shared: SharedStore, number: int) -> None:
    with anyio.fail_after(60):
        while not await shared.find("event", "ann", f"s 1-{number}", LARGE, depth=1):  # noqa: ASYNC110 - it says nothing
            await anyio.sleep(0.01)


async def test_client_that_takes_no_events_is_told_so(servers, site_of):
    async with two_stores() as (one, other, _):
        await one.keep_last("event", "anonymous", event_record("s", 1, 1, b"{}"), LARGE)
        async with site_of(servers, endpoint_with={"shared": other}) as site:
            session = await site.session()
            status = await coming_back(session, "1-0", **{"mcp-session-id": "s", "accept": "text/html"})

    assert status == 406


async def test_store_that_is_away_leaves_sessions_as_they_are(servers, site_of):
    tool = Steps(3)
    servers.tool(tool.slow)
    async with two_stores() as (one, _, client):
        client.is_there = False
        async with site_of(servers, endpoint_with={"shared": one}) as site:
            session = await site.session()
            async with session.stream("tools/call", {"name": "slow"}) as stream:
                await stream.event()
            tool.go_on.set()
            async with session.listen(**{"last-event-id": "1-1"}) as resumed:
                events = await resumed.events()
            gone = await coming_back(session, "1-1", **{"mcp-session-id": "made up"})

    assert progress(events) == [1, 2, None]
    assert gone == 404


async def test_quick_answers_cost_the_store_nothing(servers, site_of):
    tool = Steps(0)
    tool.go_on.set()
    servers.tool(tool.slow)
    metrics = Metrics()
    async with (
        shared_in_memory(Direct(Memory()), metrics=metrics) as one,
        site_of(servers, endpoint_with={"shared": one}) as site,
    ):
        session = await site.session()
        for number in range(5):
            assert (await session.call("slow", number)).status_code == 200

    results = ("ok", "nothing", "away")
    names = [{"kind": "event", "result": result} for result in results]
    assert [metrics.registry.get_sample_value("codec_shared_operations_total", each) for each in names] == [0, 0, 0]


async def test_events_that_wait_to_be_written_at_the_end_are_written() -> None:
    client, metrics = Direct(Memory()), Metrics()
    async with shared_in_memory(client, metrics=metrics) as ending:
        log = LeftEvents(ending, 1.0, 60.0).log("ann", "one")
        for number in range(1, 6):
            log.write(1, number, b"%d" % number)
    async with shared_in_memory(client) as other:
        found = await LeftEvents(other, 1.0, 60.0).after("ann", "one", 1, 0)

    assert found == [(number, b"%d" % number) for number in range(1, 6)]
