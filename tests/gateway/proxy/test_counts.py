"""What is counted on the way to a server: waits for a turn, errors by kind, and where the server stands."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.proxy import Proxy

pytestmark = pytest.mark.anyio


async def until(proxy: Proxy, *, in_flight: int, queued: int) -> None:
    with anyio.fail_after(20):
        while [(each.in_flight, each.queued) for each in proxy.statuses()] != [(in_flight, queued)]:
            await anyio.lowlevel.checkpoint()


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"server": "up", **labels})


async def test_error_of_a_server_is_counted_by_its_kind(upstream, proxy_of):
    metrics = Metrics()
    async with proxy_of(upstream("refuses"), metrics=metrics) as proxy:
        for code in (-32602, -32602, 7):
            with pytest.raises(RpcError):
                await proxy.call("up__echo", {"code": code})

    assert read(metrics, "codec_upstream_errors_total", kind="invalid_params") == 2
    assert read(metrics, "codec_upstream_errors_total", kind="other") == 1


async def test_calls_that_wait_are_shown_and_their_wait_is_measured(upstream, proxy_of):
    metrics = Metrics()
    one_at_a_time = replace(upstream("waits"), concurrency=1)
    async with proxy_of(one_at_a_time, metrics=metrics) as proxy:
        metrics.servers.follow(proxy.statuses)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.call, "up__echo", {"wait": True})
            tasks.start_soon(proxy.call, "up__echo", {})
            await until(proxy, in_flight=1, queued=1)

            assert read(metrics, "codec_upstream_in_flight") == 1
            assert read(metrics, "codec_upstream_queued") == 1
            assert read(metrics, "codec_upstream_sessions") == 1
            tasks.cancel_scope.cancel()

        await proxy.call("up__echo", {})

        assert read(metrics, "codec_upstream_queued") == 0
        assert read(metrics, "codec_upstream_queue_seconds_count") is None


async def test_call_that_got_its_turn_late_is_in_the_histogram_once(upstream, proxy_of):
    metrics = Metrics()
    two_at_a_time = replace(upstream("waits"), concurrency=2)
    async with proxy_of(two_at_a_time, metrics=metrics) as proxy, anyio.create_task_group() as tasks:
        tasks.start_soon(proxy.call, "up__echo", {"wait": True})
        await until(proxy, in_flight=1, queued=0)
        tasks.start_soon(proxy.call, "up__echo", {"release": True})
        tasks.start_soon(proxy.call, "up__echo", {})
        await until(proxy, in_flight=0, queued=0)

    assert read(metrics, "codec_upstream_queue_seconds_count") == 1
