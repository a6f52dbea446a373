"""Events with a message name their kind: some clients drop those that do not (vercel/ai 16002, agentgateway 2167)."""

import pytest

from .test_left_events import Steps, two_stores, until_written

pytestmark = pytest.mark.anyio


async def test_events_of_a_request_and_of_a_resumed_stream_are_messages(servers, site_of):
    tool = Steps(2)
    servers.tool(tool.slow)
    async with site_of(servers) as site:
        session = await site.session()
        async with session.stream("tools/call", {"name": "slow"}) as stream:
            await stream.event()
        tool.go_on.set()
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            await resumed.events()

    assert stream.kinds == ["message"]
    assert resumed.kinds == ["message"] * 2


async def test_events_of_a_modern_request_are_messages(servers, site_of):
    tool = Steps(2)
    tool.go_on.set()
    servers.tool(tool.slow)
    async with site_of(servers) as site, site.modern_stream("tools/call", {"name": "slow"}) as stream:
        await stream.events()

    assert stream.kinds == ["message"] * 3


async def test_events_that_belong_to_no_request_are_messages(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        async with session.listen() as stream:
            servers.change("tools")
            while not stream.kinds:
                await stream.event()

    assert stream.kinds == ["message"]


async def test_events_that_another_replica_left_are_messages(servers, site_of):
    tool = Steps(2)
    servers.tool(tool.slow)
    async with two_stores() as (one, other, _):
        async with site_of(servers, endpoint_with={"shared": one}) as site:
            session = await site.session()
            async with session.stream("tools/call", {"name": "slow"}) as stream:
                await stream.event()
            tool.go_on.set()
            await until_written(other, session, 1, 3)
        async with site_of(servers, endpoint_with={"shared": other}) as site:
            session.http, session.url = await site.http(), site.url
            async with session.listen(**{"last-event-id": "1-1"}) as resumed:
                await resumed.events()

    assert resumed.kinds == ["message"] * 2
