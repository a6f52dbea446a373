"""Clients of a session over HTTP that come back late, never, or do not read what is sent to them."""

import anyio
import anyio.lowlevel
import pytest

from tests.gateway.serve.mcp.http_requests import quiet, text

pytestmark = pytest.mark.anyio


async def test_stream_is_closed_after_a_while_and_its_client_comes_back_for_the_answer(servers, site_of):
    go_on = anyio.Event()

    async def slow(_, __):
        await go_on.wait()
        return text("done")

    servers.tool(slow)
    servers.tool(quiet)
    async with site_of(servers, sse_close_after=0.05) as site:
        session = await site.session()
        quick = await session.call("quiet", 2)
        async with session.stream("tools/call", {"name": "slow"}) as stream:
            assert await stream.events() == [{}]
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            go_on.set()
            events = await resumed.events()

    assert quick.headers["content-type"] == "text/event-stream"
    assert (stream.ids, stream.retry) == (["2-0"], "500")
    assert [event for event in events if event] == [{"jsonrpc": "2.0", "id": 1, "result": text("done")}]


async def test_stream_to_which_a_client_came_back_is_closed_after_a_while_too(servers, site_of):
    began, _ = servers.hanging()
    async with site_of(servers, sse_close_after=0.05) as site:
        session = await site.session()
        async with session.stream("tools/call", {"name": "hang"}) as stream:
            await began.wait()
            await stream.events()
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            again = await resumed.events()

    assert (again, resumed.ids, resumed.retry) == ([{}], stream.ids, "500")


async def test_answers_that_nobody_came_back_for_are_forgotten_over_their_bound_in_bytes_the_oldest_first(
    servers, site_of
):
    go_on = anyio.Event()

    async def large(_, __):
        await go_on.wait()
        return text("x" * 1_500_000)

    servers.tool(large)
    async with site_of(servers, sse_close_after=0.05) as site:
        session = await site.session()
        ids = []
        for number in range(5):
            async with session.stream("tools/call", {"name": "large"}, number) as stream:
                assert await stream.events() == [{}]
            ids += stream.ids
        go_on.set()
        found = []
        for last in reversed(ids):
            async with session.listen(**{"last-event-id": last}) as resumed:
                found.append(resumed.response.status_code)
                await resumed.response.aread()

    assert found == [200, 200, 200, 400, 400]


async def test_client_that_does_not_know_how_to_come_back_keeps_its_stream(servers, site_of):
    async def slow(_, __):
        await anyio.sleep(0.05)
        return text("done")

    servers.tool(slow)
    async with site_of(servers, sse_close_after=0.01) as site:
        session = await site.session("2025-06-18")
        answer = await session.call("slow")

    assert answer.json()["result"] == text("done")


async def test_client_that_does_not_read_its_stream_holds_up_nobody_and_loses_progress_only(servers, site_of):
    flooded = anyio.Event()

    async def flood(_, caller):
        for step in range(40):
            caller.notified("notifications/resources/updated", {"uri": f"x:{step}"})
            for _ in range(30):
                caller.notified("notifications/progress", {"progress": step, "message": "x" * 20_000})
            await anyio.lowlevel.checkpoint()
        flooded.set()
        return text("done")

    servers.tool(flood)
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session()
        async with session.stream("tools/call", {"name": "flood"}, 9) as stream:
            with anyio.fail_after(20):
                await flooded.wait()
            beside = await session.call("quiet")
            events = await stream.events()

    updates = [event["params"]["uri"] for event in events if event.get("method") == "notifications/resources/updated"]
    assert beside.json()["result"] == text("done")
    assert site.dropped() > 0
    assert updates == [f"x:{step}" for step in range(40)]
    assert events[-1]["id"] == 9
