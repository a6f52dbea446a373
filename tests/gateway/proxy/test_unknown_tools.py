"""A name that no server listed is ours to refuse: no server sees it, with a prefix or without one."""

import pytest

from gateway.config.gateway_config import GatewayConfig
from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.proxy import Proxy

pytestmark = pytest.mark.anyio
ASKS = {"elicitation": {}}


@pytest.fixture
def alone():
    """Makes a proxy of these servers, whose names carry no prefix."""
    return lambda *upstreams: Proxy(GatewayConfig(upstreams=upstreams, prefix="never"), Metrics())


async def refused(proxy, one, name):
    with pytest.raises(RpcError, match=f"unknown tool '{name}'") as raised:
        await proxy.handle("tools/call", {"name": name}, one)
    return raised.value.error["code"]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("capabilities", [{}, ASKS], ids=["asks nobody", "may ask"])
async def test_unknown_name_reaches_no_server(obeying, alone, client, noted, starts, modern, capabilities):
    async with alone(obeying()) as proxy:
        code = await refused(proxy, client(modern=modern, **capabilities), "nope")

    assert code == INVALID_PARAMS
    # A server may list more to a client that can be asked: it is asked for that list.
    assert starts() == (2 if capabilities else 1)
    assert not [line for line in noted() if line.startswith("call ")]


async def test_client_with_a_process_of_its_own_reaches_what_that_one_listed_and_nothing_else(
    obeying, proxy_of, client, call, noted
):
    async with proxy_of(obeying()) as proxy:
        one = client(**ASKS)
        await call(proxy, one, list=["do", "more"])
        await proxy.handle("tools/list", {}, one)
        await call(proxy, one, "up__more")
        await refused(proxy, one, "up__nope")
        await refused(proxy, client(**ASKS), "up__more")

    assert [line for line in noted() if line.startswith("call ")] == ["call do", "call more"]


async def test_tool_of_a_server_that_listed_nothing_yet_is_looked_for_there(obeying, alone, client, noted):
    async with alone(obeying("up", start="lazy")) as proxy:
        await proxy.handle("tools/call", {"name": "do"}, client())
        await refused(proxy, client(), "nope")

    assert [line for line in noted() if line.startswith("call ")] == ["call do"]


async def test_tool_of_a_server_whose_list_changed_since_is_looked_for_there(
    obeying, alone, client, noted, monkeypatch
):
    offer = {"capabilities": {"tools": {"listChanged": True}}}
    # It is not listed anew while the test runs.
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance.Maintenance.changed", lambda *_: None)
    async with alone(obeying("up", offer)) as proxy:
        await proxy.handle("tools/call", {"name": "do", "arguments": {"list": ["do", "more"]}}, client())
        await proxy.handle("tools/call", {"name": "more"}, client())

    assert [line for line in noted() if line.startswith("call ")] == ["call do", "call more"]


async def test_server_without_tools_is_sent_no_call(upstream, obeying, alone, client, noted):
    async with alone(obeying("up", {"tools": [], "prompts": ["p"]})) as proxy:
        await refused(proxy, client(), "do")

    assert not [line for line in noted() if line.startswith("call ")]


async def test_server_of_a_tool_is_named_before_it_listed_it(obeying, alone):
    async with alone(obeying("up", start="lazy")) as proxy:
        assert proxy.server_of("do") == "up"
    async with alone(obeying("one", {"tools": ["a"]}), obeying("two", {"tools": ["b"]})) as proxy:
        assert [proxy.server_of(name) for name in ("a", "b", "nope")] == ["one", "two", None]
