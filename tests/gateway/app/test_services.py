"""The services of one gateway report about each other: what engines and servers do is on its pages."""

import sys
from pathlib import Path

import anyio
import pytest

from gateway.app.services import open_services
from gateway.config.gateway_config import GatewayConfig, TokensConfig, UpstreamConfig
from gateway.config.replicas import SharedConfig
from tests.gateway.app.conftest import URL, ScriptedEngines

pytestmark = pytest.mark.anyio
CLOCK = UpstreamConfig("time", sys.executable, (str(Path(__file__).parents[2] / "e2e" / "servers" / "tells_time.py"),))
PLAIN = TokensConfig(map=None)


async def test_engine_that_comes_and_goes_is_on_the_pages(engines: list[ScriptedEngines]) -> None:
    async with open_services(GatewayConfig(engine=URL, tokens=PLAIN), 3.0) as services:
        (scripted,) = engines
        page = services.metrics.registry.get_sample_value
        before = services.readiness.report()
        scripted.set("engine", None)
        up = services.readiness.report(), page("codec_engine_up")
        scripted.set("engine", "it ended")
        down = services.readiness.report(), page("codec_engine_up")

    assert scripted.waits == [3.0]
    assert (before["components"], before["reasons"]) == ({"engine": False}, ["engine: not there yet"])
    assert before["engine"]["state"] != "ready"
    assert (up[0]["components"], up[0]["engine"], up[1]) == ({"engine": True}, {"state": "ready"}, 1)
    assert (down[0]["reasons"], down[1]) == (["engine: it ended"], 0)
    assert "engines" not in before
    assert page("codec_pool_engine_up", {"engine": "engine"}) is None


async def test_pool_is_well_while_one_engine_is_and_names_each(engines: list[ScriptedEngines]) -> None:
    config = GatewayConfig(engines={"one": URL, "two": URL}, tokens=PLAIN)
    async with open_services(config) as services:
        (scripted,) = engines
        page = services.metrics.registry.get_sample_value
        scripted.set("one", None)
        scripted.set("two", "it ended")
        report = services.readiness.report()
        shown = [page("codec_pool_engine_up", {"engine": name}) for name in ("one", "two")]
        scripted.set("one", "gone")
        reasons = services.readiness.report()["reasons"]
        mcp_endpoint = services.mcp_endpoint()

    well = {"up": True, "state": "ready", "answers": 0, "breaker": "closed"}
    assert (report["components"], report["engine"]) == ({"engine": True}, {"state": "ready"})
    assert report["engines"]["one"] == well
    assert report["engines"]["two"] == {**well, "up": False, "state": report["engines"]["two"]["state"]}
    assert report["engines"]["two"]["state"] != "ready"
    assert shown == [1, 0]
    assert reasons == ["engine: one: gone"]
    assert mcp_endpoint is not services.mcp_endpoint()


async def test_definitions_are_counted_again_when_an_engine_comes(engines: list[ScriptedEngines]) -> None:
    counted: list[int] = []
    came = anyio.Event()

    async def note() -> None:
        counted.append(1)
        if len(counted) == 1:
            # Behind it, what waits for a change waits.
            tasks.start_soon(come)
        else:
            came.set()

    async def come() -> None:
        engines[0].set("engine", None)

    async with open_services(GatewayConfig(engine=URL, tokens=PLAIN)) as services:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(services.costs.follow, services.proxy, services.metrics.servers, note)
                await came.wait()
                tasks.cancel_scope.cancel()


async def test_servers_are_shown_without_their_words_and_counted() -> None:
    async with open_services(GatewayConfig(upstreams=(CLOCK,), tokens=PLAIN)) as services:
        report = services.readiness.report()
        sessions = services.metrics.registry.get_sample_value("codec_upstream_sessions", {"server": "time"})
        parts = services.parts

    assert report["upstreams"] == {"time": {"state": "up", "transport": "stdio", "tools": 1, "restarts": 0}}
    assert sessions == 1
    assert not {"engine", "engines"} & report.keys()
    assert report["components"] == {}
    assert (parts.proxy, parts.agent, parts.config.upstreams) == (services.proxy, services.agent, (CLOCK,))


async def test_store_that_is_away_holds_up_nobody_and_is_in_the_report() -> None:
    config = GatewayConfig(tokens=PLAIN, shared=SharedConfig("redis://127.0.0.1:9/0"))
    with anyio.fail_after(20):
        async with open_services(config) as services:
            report = await services.status.make()

    assert services.shared is not None
    assert report["shared"]["up"] is False
