"""What clients meet while servers start: everything is announced, quick servers are there, slow ones join them."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config.model import UpstreamConfig
from gateway.proxy import Proxy
from gateway.proxy.caller import NOBODY

pytestmark = pytest.mark.anyio
ANNOUNCED = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}


@dataclass
class Starting:
    """A proxy whose server `late` starts when it is let."""

    proxy: Proxy
    gate: Path

    async def let(self) -> None:
        """Let the server start."""
        await anyio.to_thread.run_sync(self.gate.write_text, "go")


@pytest.fixture
def starting(tmp_path: Path, upstream, proxy_of) -> Callable[..., Any]:
    """Makes a proxy that is being entered, and can't be until it is let."""

    @asynccontextmanager
    async def make(*others: UpstreamConfig, adopt: Any = None) -> AsyncGenerator[Starting]:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        late = upstream("starts_late", name="late")
        late = replace(late, env={**late.env, "GATE": str(gate)}, protocol="handshake")
        proxy = proxy_of(late, *others)
        if adopt is not None:
            proxy.adopt(adopt)
        over = anyio.Event()

        async def run() -> None:
            async with proxy:
                await over.wait()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                try:
                    yield Starting(proxy, gate)
                finally:
                    over.set()
                    proxy.stop()

    return make


def names(result: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in result["tools"]]


async def test_everything_that_can_be_relayed_is_announced_before_any_server_is_up(starting):
    async with starting() as site:
        assert site.proxy.capabilities() == ANNOUNCED


async def test_what_servers_offer_is_announced_exactly_once_all_were_up(proxy_of, upstream):
    async with proxy_of(upstream("echo")) as proxy:
        assert proxy.capabilities() == {"tools": {"listChanged": True}}


async def test_list_holds_the_servers_that_are_up_and_the_change_tells_of_those_that_started_later(
    starting, upstream, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.caller_lists._FIRST_START", 0)
    async with starting(upstream("echo", name="quick")) as site:
        changed = anyio.Event()
        listed = names(await site.proxy.handle("tools/list", {}, NOBODY))
        site.proxy.on_change(lambda change: changed.set() if change.server == "late" else None)
        await site.let()
        await changed.wait()
        later = names(await site.proxy.handle("tools/list", {}, NOBODY))

    assert listed == ["quick__echo"]
    assert later == ["late__echo", "quick__echo"]


async def test_first_list_waits_for_a_server_that_starts_since_many_clients_list_once(starting, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.caller_lists._STARTING", 0)
    monkeypatch.setattr("gateway.proxy.upstream.caller_lists._FIRST_START", 600)
    listed: list[str] = []

    async def ask(proxy: Proxy) -> None:
        listed.extend(names(await proxy.handle("tools/list", {}, NOBODY)))

    async with starting() as site, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, site.proxy)
        await anyio.wait_all_tasks_blocked()
        await site.let()

    assert listed == ["late__echo"]


async def test_call_of_a_tool_that_is_listed_does_not_wait_for_servers_that_start(starting, upstream, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.caller_lists._FIRST_START", 0)
    async with starting(upstream("echo", name="quick")) as site:
        await site.proxy.handle("tools/list", {}, NOBODY)
        result = await site.proxy.handle("tools/call", {"name": "quick__echo", "arguments": {}}, NOBODY)

    assert result["content"][0]["text"] == "hello"


async def test_call_of_a_tool_of_a_server_that_starts_waits_for_it(starting):
    answers = []

    async def call(proxy: Proxy) -> None:
        answers.append(await proxy.handle("tools/call", {"name": "late__echo", "arguments": {}}, NOBODY))

    async with starting() as site, anyio.create_task_group() as tasks:
        tasks.start_soon(call, site.proxy)
        await anyio.wait_all_tasks_blocked()
        await site.let()

    assert answers[0]["content"][0]["text"] == "late"


async def test_level_that_a_client_names_while_its_server_starts_reaches_the_server(starting, client, until_noted):
    alone = client()
    async with starting(adopt=alone) as site:
        alone.log_level = "warning"
        answer = await site.proxy.handle("logging/setLevel", {"level": "warning"}, alone)
        await site.let()
        await until_noted("level warning")

    assert answer == {}
