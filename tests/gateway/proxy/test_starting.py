"""What clients meet while servers start: everything is announced, quick servers are there, slow ones join them."""

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import NOBODY
from gateway.proxy.proxy import Proxy
from gateway.proxy.upstream.server_lists import ListCache

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

    async def let(self, word: str = "go") -> None:
        """Let the server start, or die."""
        await anyio.to_thread.run_sync(self.gate.write_text, word)


@pytest.fixture
def starting(tmp_path: Path, upstream, proxy_of) -> Callable[..., Any]:
    """Makes a proxy that is being entered, and can't be until it is let."""

    @asynccontextmanager
    async def make(
        *others: UpstreamConfig, adopt: Any = None, described: str = "", settings: Any = None, **given: Any
    ) -> AsyncGenerator[Starting]:
        gate = tmp_path / "gate"
        if not gate.exists():
            os.mkfifo(gate)
        late = upstream("starts_late", name="late")
        env = {**late.env, "GATE": str(gate), "DESCRIPTION": described}
        late = replace(late, env=env, protocol="handshake", **(settings or {}))
        proxy = proxy_of(late, *others, **given)
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
        announced = site.proxy.capabilities()
        await site.let()

    assert announced == ANNOUNCED


async def test_what_servers_offer_is_announced_exactly_once_all_were_up(proxy_of, upstream):
    async with proxy_of(upstream("echo")) as proxy:
        assert proxy.capabilities() == {"tools": {"listChanged": True}}


async def test_list_holds_the_servers_that_are_up_and_the_change_tells_of_those_that_started_later(starting, upstream):
    async with starting(upstream("echo", name="quick"), list_wait=3.0) as site:
        changed = anyio.Event()
        listed = names(await site.proxy.handle("tools/list", {}, NOBODY))
        site.proxy.on_change(lambda change: changed.set() if change.server == "late" else None)
        await site.let()
        await changed.wait()
        later = names(await site.proxy.handle("tools/list", {}, NOBODY))

    assert listed == ["quick__echo"]
    assert later == ["late__echo", "quick__echo"]


async def test_first_list_waits_for_a_server_that_starts_since_many_clients_list_once(starting, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.server_lists._STARTING", 0)
    listed: list[str] = []

    async def ask(proxy: Proxy) -> None:
        listed.extend(names(await proxy.handle("tools/list", {}, NOBODY)))

    async with starting(list_wait=600.0) as site, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, site.proxy)
        await anyio.wait_all_tasks_blocked()
        await site.let()

    assert listed == ["late__echo"]


async def test_list_waits_no_longer_than_its_own_limit_for_a_server_that_starts(starting):
    async with starting(list_wait=0.01, start_timeout=600.0) as site:
        with anyio.fail_after(30):
            assert names(await site.proxy.handle("tools/list", {}, NOBODY)) == []
        await site.let()


async def test_call_of_a_tool_that_is_listed_does_not_wait_for_servers_that_start(starting, upstream):
    async with starting(upstream("echo", name="quick"), list_wait=3.0) as site:
        await site.proxy.handle("tools/list", {}, NOBODY)
        result = await site.proxy.handle("tools/call", {"name": "quick__echo", "arguments": {}}, NOBODY)
        await site.let()

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


@pytest.fixture
async def cache(tmp_path: Path, starting) -> ListCache:
    """What an earlier run has kept of the server `late`."""
    cache = ListCache(tmp_path / "lists")
    async with starting(list_cache=cache) as site:
        await site.let()
        await site.proxy.ready()
        assert names(await site.proxy.handle("tools/list", {}, NOBODY)) == ["late__echo"]
    return cache


def rename_kept(tmp_path: Path) -> None:
    """As if the server had listed another tool in the earlier run."""
    (file,) = (tmp_path / "lists").glob("*.json")
    kept = json.loads(file.read_text())
    kept["lists"]["tools"][0][0]["name"] = "old"
    file.write_text(json.dumps(kept))


@pytest.mark.parametrize("adopts", [True, False])
async def test_first_look_shows_what_an_earlier_run_knew_of_a_server_that_still_starts(
    starting, cache, client, upstream, adopts
):
    alone = client() if adopts else None
    async with starting(upstream("echo", name="quick"), adopt=alone, list_cache=cache, list_wait=600.0) as site:
        assert site.proxy.instructions() == "wait for it"
        assert site.proxy.capabilities() == ANNOUNCED
        for caller in (NOBODY, client(modern=True), *([alone] if alone else [])):
            assert names(await site.proxy.handle("tools/list", {}, caller)) == ["late__echo", "quick__echo"]
            assert (await site.proxy.handle("prompts/list", {}, caller))["prompts"] == []
        status = site.proxy.statuses()[0]

    assert (status.state, status.tools, status.protocol) == ("starting", 0, None)


async def test_list_that_is_still_the_same_is_announced_to_nobody(starting, cache):
    told: list[Any] = []
    async with starting(list_cache=cache) as site:
        first = await site.proxy.handle("tools/list", {}, NOBODY)
        site.proxy.on_change(told.append)
        await site.let()
        await site.proxy.ready()
        later = await site.proxy.handle("tools/list", {}, NOBODY)
        assert told == []

    assert first == later


async def test_list_that_has_changed_since_the_earlier_run_is_corrected_and_announced(starting, cache, tmp_path):
    rename_kept(tmp_path)
    told: list[Any] = []
    async with starting(list_cache=cache) as site:
        first = names(await site.proxy.handle("tools/list", {}, NOBODY))
        site.proxy.on_change(told.append)
        await site.let()
        await site.proxy.ready()
        later = names(await site.proxy.handle("tools/list", {}, NOBODY))
        assert [(change.kind, change.server) for change in told] == [("tools", "late")]

    assert (first, later) == (["late__old"], ["late__echo"])


async def test_server_that_does_not_come_up_is_shown_no_longer(starting, cache):
    limits = {"restart_backoff": 3600.0, "restart_backoff_max": 3600.0}
    told: list[Any] = []
    async with starting(list_cache=cache, list_wait=0.0, **limits) as site:
        first = names(await site.proxy.handle("tools/list", {}, NOBODY))
        site.proxy.on_change(told.append)
        await site.let("die")
        await site.proxy.ready()
        later = names(await site.proxy.handle("tools/list", {}, NOBODY))
        words = site.proxy.instructions()

    assert (first, later, words) == (["late__echo"], [], None)
    assert ("tools", "late") in [(change.kind, change.server) for change in told]


@pytest.mark.parametrize(
    ("name", "expected"), [("late__echo", "late"), ("late__old", "unknown tool 'late__old'")], ids=["known", "gone"]
)
async def test_call_of_a_tool_of_an_earlier_run_waits_until_its_server_says_what_it_has(
    starting, cache, tmp_path, name, expected
):
    if name == "late__old":
        rename_kept(tmp_path)
    answers: list[str] = []

    async def call(proxy: Proxy) -> None:
        try:
            result = await proxy.handle("tools/call", {"name": name, "arguments": {}}, NOBODY)
            answers.append(result["content"][0]["text"])
        except RpcError as error:
            answers.append(error.message)

    async with starting(list_cache=cache) as site, anyio.create_task_group() as tasks:
        tasks.start_soon(call, site.proxy)
        await anyio.wait_all_tasks_blocked()
        assert answers == []
        await site.let()

    (answer,) = answers
    assert answer.startswith(expected)


async def test_tool_whose_definition_is_no_longer_the_pinned_one_is_not_called_as_the_earlier_one(
    starting, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings: dict[str, Any] = {"pin": "block"}
    cache = ListCache(tmp_path / "lists")
    async with starting(list_cache=cache, settings=settings) as site:
        await site.let()
        await site.proxy.ready()
    answers: list[str] = []

    async def call(proxy: Proxy) -> None:
        with pytest.raises(RpcError) as refused:
            await proxy.handle("tools/call", {"name": "late__echo", "arguments": {}}, NOBODY)
        answers.append(refused.value.message)

    async with starting(list_cache=cache, settings=settings, described="send it to me first") as site:
        assert names(await site.proxy.handle("tools/list", {}, NOBODY)) == ["late__echo"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, site.proxy)
            await anyio.wait_all_tasks_blocked()
            await site.let()

    assert "its definition is not the pinned one" in answers[0]


async def test_lazy_server_that_an_earlier_run_knew_is_listed_without_being_started(starting, cache, noted):
    started = noted().count("started")
    async with starting(list_cache=cache, settings={"start": "lazy"}) as site:
        await site.proxy.ready()
        listed = names(await site.proxy.handle("tools/list", {}, NOBODY))
        state = site.proxy.statuses()[0].state

    assert (listed, state, noted().count("started")) == (["late__echo"], "idle", started)


async def test_old_list_of_a_server_that_still_starts_ends_no_start(proxy_of, upstream, cache, tmp_path):
    # With no prefixes, and a start that does not wait, both would be called `echo`.
    late = upstream("starts_late", name="late")
    late = replace(late, env={**late.env, "GATE": str(tmp_path / "gate"), "DESCRIPTION": ""}, protocol="handshake")
    config = GatewayConfig(upstreams=(late, upstream("echo", name="quick")), prefix="never")
    async with Proxy(config, Metrics(), list_cache=cache, start_wait=0.0) as proxy:
        assert [entry.server for entry in proxy.tools()] == ["late"]
