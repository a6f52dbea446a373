"""Calls of handshake-era servers that outlive a modern client's rounds."""

import asyncio
import secrets
from types import SimpleNamespace

import anyio
import pytest

from gateway.errors import RpcError
from gateway.proxy.bridge import Bridge
from gateway.proxy.caller import ANYBODY, ShareRule

pytestmark = pytest.mark.anyio
CLIENT = SimpleNamespace(
    modern=True, session=None, capabilities={"roots": {}}, log_level=None, principal=ANYBODY, notified=lambda *_: None
)


class AsksAside:
    """A server that asks for roots and gives its result without waiting for them."""

    def __init__(self):
        self.go_on = anyio.Event()
        self.answers = []

    async def run(self, caller):
        async def ask():
            self.answers.append(await caller.asked("roots/list", {}))

        self.asking = asyncio.create_task(ask())
        await self.go_on.wait()
        return {"content": []}


@pytest.fixture
async def bridge():
    async with anyio.create_task_group() as tasks:
        yield Bridge(tasks.start_soon, ShareRule(), lambda principal: secrets.token_hex(8))
        tasks.cancel_scope.cancel()


async def test_result_that_came_before_the_client_came_back_is_there_for_it(bridge):
    server = AsksAside()

    first = await bridge.begin("up", "tools/call", {}, CLIENT, server.run)
    server.go_on.set()
    await anyio.wait_all_tasks_blocked()
    again = {"requestState": first["requestState"], "inputResponses": {"q1": {"roots": []}}}
    second = await bridge.resume("tools/call", again, CLIENT)

    assert [request["method"] for request in first["inputRequests"].values()] == ["roots/list"]
    assert second == {"content": []}


async def test_answer_with_too_many_roots_is_an_error_for_the_server_that_asked(bridge):
    server = AsksAside()
    first = await bridge.begin("up", "tools/call", {}, CLIENT, server.run)
    server.go_on.set()
    again = {"requestState": first["requestState"], "inputResponses": {"q1": {"roots": [{}] * 1001}}}
    await bridge.resume("tools/call", again, CLIENT)

    with pytest.raises(RpcError, match="the client has 1001 roots: at most 1000 are passed on"):
        await server.asking


async def test_result_is_given_out_once(bridge):
    server = AsksAside()
    first = await bridge.begin("up", "tools/call", {}, CLIENT, server.run)
    server.go_on.set()
    await anyio.wait_all_tasks_blocked()
    await bridge.resume("tools/call", {"requestState": first["requestState"]}, CLIENT)

    with pytest.raises(RpcError, match="unknown or expired requestState"):
        await bridge.resume("tools/call", {"requestState": first["requestState"]}, CLIENT)
