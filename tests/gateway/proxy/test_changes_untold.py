"""What a modern server changes while its stream of changes is opened, it tells nobody: it is found all the same."""

import pytest

from gateway.proxy.caller import ANYBODY

pytestmark = pytest.mark.anyio


async def test_tool_that_came_before_a_stream_of_changes_stood_is_found(upstream, proxy_of, until, client):
    told = []
    async with proxy_of(upstream("changes_before_it_tells")) as proxy:
        proxy.on_change(told.append)
        await until(proxy, lambda: [each.tool for each in proxy.tools()] == ["do", "do1"])
        await proxy.watch(["x:1"], ANYBODY, lambda _: None)
        await until(proxy, lambda: [each.tool for each in proxy.tools()] == ["do", "do1", "do2"])
        await proxy.handle("tools/call", {"name": "up__do2"}, client())

    assert [(change.kind, change.server) for change in told[-1:]] == [("tools", "up")]
