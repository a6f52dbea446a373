"""A server that hangs with its connection open holds up what it is asked, and nothing else."""

import os
import signal

import anyio
import pytest

from gateway.errors import RpcError
from gateway.proxy.caller import ANYBODY

pytestmark = pytest.mark.anyio
LOGS = {"capabilities": {"logging": {}}}
RESOURCES = {"resources": ["x:1", "x:2"], "capabilities": {"resources": {"subscribe": True}}}


@pytest.fixture
def stopped():
    """Stops a process; it goes on at the end, so that it can be asked to leave."""
    pids = []

    def stop(pid):
        pids.append(pid)
        os.kill(pid, signal.SIGSTOP)

    def go_on():
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    stop.go_on = go_on
    return stop


async def test_lists_come_with_what_a_hanging_server_last_said(obeying, proxy_of, client, call, stopped, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.listing._SHORT", 0.0)
    monkeypatch.setattr("gateway.proxy.upstream.server_lists._RELISTING", 0.2)
    async with proxy_of(obeying("one"), obeying("two")) as proxy:
        one = client()
        stopped((await call(proxy, one, "one__do"))["pid"])
        with anyio.fail_after(20):
            listed = await proxy.handle("tools/list", {}, one)
        stopped.go_on()

    assert [tool["name"] for tool in listed["tools"]] == ["one__do", "two__do"]


async def test_log_level_is_told_to_the_servers_that_listen(
    obeying, proxy_of, client, call, stopped, until_noted, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.router._LEVEL_TIME", 1.0)
    async with proxy_of(obeying("one", LOGS), obeying("two", LOGS)) as proxy:
        one = client()
        stopped((await call(proxy, one, "one__do"))["pid"])
        with anyio.fail_after(20):
            answer = await proxy.handle("logging/setLevel", {"level": "error"}, one)
        await until_noted("logging/setLevel error")
        stopped.go_on()

    assert answer == {}


async def test_log_level_that_nobody_took_is_an_error_that_names_a_server(obeying, proxy_of, client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.router._LEVEL_TIME", 0.3)
    async with proxy_of(obeying("up", {**LOGS, "mute": ["error"]})) as proxy:
        with pytest.raises(RpcError, match=r"server 'up' did not answer logging/setLevel within 0\.3 s"):
            await proxy.handle("logging/setLevel", {"level": "error"}, client())


async def test_resource_whose_subscription_is_not_answered_keeps_no_other_from_being_watched(
    obeying, proxy_of, client, call, until_noted, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance._ANSWERING", 0.2)
    heard = []
    async with proxy_of(obeying("up", {**RESOURCES, "mute": ["x:1"]})) as proxy:
        with anyio.fail_after(20):
            stop = await proxy.watch(["x:1", "x:2"], ANYBODY, heard.append)
        await until_noted("resources/subscribe x:2")
        await call(proxy, client(modern=True), push=[["notifications/resources/updated", {"uri": "x:2"}]])
        stop()

    assert heard == ["x:2"]
