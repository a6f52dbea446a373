"""The proxies of two workers, whose clients share a server's process: each hears what is its own and nothing else."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config.gateway_config import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.config.replicas import WorkerConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.proxy import Proxy
from tests.gateway.proxy.conftest import Client

pytestmark = pytest.mark.anyio
LOG = ["notifications/message", {"level": "info", "data": "it works"}]
OFFER = {"capabilities": {"logging": {}, "resources": {"subscribe": True, "listChanged": True}}, "resources": ["x:1"]}


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return WorkerConfig(0, 2, tmp_path, ()).servers


@pytest.fixture
def proxy_of(tmp_path: Path) -> Callable[..., Proxy]:
    """The proxy of one worker."""

    def make(*upstreams: UpstreamConfig, number: int = 0) -> Proxy:
        limits = LimitsConfig(start_timeout=20.0, restart_backoff=0.01, restart_backoff_max=0.05)
        worker = WorkerConfig(number, 2, tmp_path, ())
        config = GatewayConfig(upstreams=upstreams, prefix="always", limits=limits, worker=worker)
        return Proxy(config, Metrics())

    return make


async def call(proxy: Proxy, client: Any, **orders: Any) -> dict[str, Any]:
    with anyio.fail_after(60):
        result = await proxy.handle(
            "tools/call", {"name": "up__do", "arguments": orders, "_meta": {"progressToken": "mine"}}, client
        )
    return result.get("structuredContent") or result


def count(notes: Path, words: str) -> int:
    return notes.read_text().count(words) if notes.exists() else 0


async def noted(notes: Path, words: str, times: int = 1) -> None:
    with anyio.fail_after(60):
        while count(notes, words) < times:  # noqa: ASYNC110
            await anyio.sleep(0.01)


Host = Callable[[], AbstractAsyncContextManager[None]]


async def test_progress_reaches_the_client_whose_call_it_is_and_a_log_message_nobody_of_two(
    host: Host, upstream: Callable[..., UpstreamConfig], proxy_of: Callable[..., Proxy], notes: Path
) -> None:
    config = upstream("obeys", json.dumps(OFFER))
    ann, bob = Client(), Client()
    progress = ["notifications/progress", {"progress": 1}]
    async with host(), proxy_of(config) as one, proxy_of(config, number=1) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(one, ann, hold=True))
            await noted(notes, "holds")
            answer = await call(other, bob, push=[progress, LOG], release=True)
        alone = await call(other, bob, push=[LOG])

    assert answer["pid"] == alone["pid"]
    assert ann.heard == []
    assert bob.heard == [
        ("notifications/progress", {"progressToken": "mine", "progress": 1}),
        ("notifications/message", LOG[1]),
    ]


async def test_list_that_changed_is_listed_anew_by_every_worker(
    host: Host, upstream: Callable[..., UpstreamConfig], proxy_of: Callable[..., Proxy]
) -> None:
    config = upstream("obeys", json.dumps(OFFER))
    async with host(), proxy_of(config) as one, proxy_of(config, number=1) as other:
        seen = anyio.Event()
        other.on_tools_changed(lambda: seen.set() if len(other.tools()) == 2 else None)
        await call(one, Client(), list=["do", "more"])
        with anyio.fail_after(60):
            await seen.wait()


async def test_client_that_may_be_asked_has_a_process_of_its_own_and_is_the_only_one_who_is(
    host: Host, upstream: Callable[..., UpstreamConfig], proxy_of: Callable[..., Proxy], notes: Path
) -> None:
    config = upstream("obeys", json.dumps(OFFER))
    ann, bob = Client(elicitation={}), Client()
    ann.answers["elicitation/create"] = {"action": "accept", "content": {}}
    async with host(), proxy_of(config) as one, proxy_of(config, number=1) as other:
        own = await call(one, ann)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(other, bob, hold=True))
            await noted(notes, "holds")
            await call(one, ann, ask=["elicitation/create", {"message": "?"}])
            await call(other, bob, release=True)
        shared = await call(one, Client())

    assert own["pid"] != shared["pid"]
    assert (ann.was_asked, bob.was_asked) == (["elicitation/create"], [])


async def test_question_in_the_midst_of_calls_of_two_workers_is_put_to_no_client(
    host: Host, upstream: Callable[..., UpstreamConfig], proxy_of: Callable[..., Proxy], notes: Path
) -> None:
    config = upstream("obeys", json.dumps(OFFER), sessions="shared")
    ann, bob = Client(roots={}), Client(roots={})
    async with (
        host(),
        proxy_of(config) as one,
        proxy_of(config, number=1) as other,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(one, ann, hold=True))
            await noted(notes, "holds")
            refused = await call(other, bob, ask=["roots/list", {}])
            await call(other, bob, release=True)
        await call(other, bob, ask=["roots/list", {}])

    assert refused["answer"]["message"] == "there is no client that can answer 'roots/list'"
    assert (ann.was_asked, bob.was_asked) == ([], ["roots/list"])


async def test_subscription_of_a_worker_lasts_when_that_of_the_other_ends(
    host: Host, upstream: Callable[..., UpstreamConfig], proxy_of: Callable[..., Proxy], notes: Path
) -> None:
    config = upstream("obeys", json.dumps(OFFER))
    ann, bob = Client(), Client()
    async with host(), proxy_of(config) as one, proxy_of(config, number=1) as other:
        for proxy, client in ((one, ann), (other, bob)):
            await proxy.handle("resources/subscribe", {"uri": "x:1"}, client)
        await noted(notes, "resources/subscribe x:1", 2)
        await one.handle("resources/unsubscribe", {"uri": "x:1"}, ann)
        await call(one, ann)
        assert count(notes, "resources/unsubscribe") == 0
        await other.handle("resources/unsubscribe", {"uri": "x:1"}, bob)
        await noted(notes, "resources/unsubscribe x:1")
