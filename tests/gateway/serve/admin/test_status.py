"""The status report of a real gateway, and who is shown it."""

import json
import os
import stat
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
import pytest

from gateway.app.services import open_services
from gateway.config.gateway_config import GatewayConfig, LimitsConfig, ServeConfig, TokensConfig, UpstreamConfig
from gateway.context.compose.recall import Comparison
from gateway.context.memory import RequestFigures
from gateway.context.memory.message_digests import Miss
from gateway.observe.metrics import Metrics
from gateway.proxy.costs import definition_text
from gateway.proxy.upstream.items.tool_pins import PinFile
from gateway.serve.admin.admin_pages import Readiness, admin_app
from gateway.serve.admin.status_report import prompt_report
from leaf_sdk.vocab import load_map
from tests.gateway.app.conftest import URL, ScriptedEngines

pytestmark = pytest.mark.anyio
TELLS_TIME = str(Path(__file__).parents[3] / "e2e" / "servers" / "tells_time.py")
SECRET = "tok-5555-6666"
TELLS_ITS_SECRET = (
    "import json, os, sys\n"
    "for line in sys.stdin:\n"
    "    asked = json.loads(line)\n"
    "    error = {'code': 1, 'message': 'no licence for ' + os.environ['KEY']}\n"
    "    if 'id' in asked:\n"
    "        print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'error': error}), flush=True)\n"
)


def clock(name: str = "time") -> UpstreamConfig:
    return UpstreamConfig(name=name, command=sys.executable, args=(TELLS_TIME,))


def config_of(*upstreams: UpstreamConfig, **more: object) -> GatewayConfig:
    settings = {"tokens": TokensConfig(map=None), "limits": LimitsConfig(restart_backoff=30.0), **more}
    return GatewayConfig(upstreams=upstreams, prefix="always", **settings)  # pyright: ignore[reportArgumentType]


@asynccontextmanager
async def reported(config: GatewayConfig):
    async with open_services(config) as services:
        yield services, await services.status.make()


async def test_report_shows_what_each_server_is_and_offers() -> None:
    async with reported(config_of(clock())) as (_, report):
        (server,) = report["servers"]

    tools = server.pop("tools")
    assert server["definition_tokens"] == tools[0]["tokens"] == report["definition_tokens"]
    assert tools == [
        {
            "name": "time__get_time",
            "tokens": tools[0]["tokens"],
            "estimated": True,
            "ids": None,
            "pin_broken": False,
        }
    ]
    assert (server["name"], server["transport"], server["state"]) == ("time", "stdio", "up")
    assert server["bolt_ons"] == []
    assert (server["sessions"], server["in_flight"], server["queued"], server["restarts"]) == (1, 0, 0, 0)
    assert (server["breaker"], server["last_error"], server["pin"]) == ("closed", None, "warn")
    assert server["protocol"] in {"2025-11-25", "2026-07-28"}
    assert report["engine"]["kind"] == "none"
    assert report["maps"] == {"session": None, "accepted": []}
    assert report["shim"]["tokenize_calls"] == 0
    assert report["uptime"] >= 0


async def test_tools_are_counted_under_the_session_map_and_named_by_who_made_their_ids(
    tmp_path: Path, model_map_bytes: bytes
) -> None:
    path = tmp_path / "map.json"
    path.write_bytes(model_map_bytes)
    token_map = load_map(model_map_bytes)
    async with open_services(config_of(clock(), tokens=TokensConfig(map=str(path)))) as services:
        result = await services.proxy.call("time__get_time", {"city": "Tokyo"})
        services.tokens.for_client("time__get_time", result, token_map)
        services.costs.count(services.proxy.tools())
        report = await services.status.make()
        expected = len(token_map.encode(definition_text(services.proxy.tools()[0])))

    (tool,) = report["servers"][0]["tools"]
    assert (tool["tokens"], tool["estimated"], tool["ids"]) == (expected, False, "shim")
    assert report["maps"] == {"session": token_map.map_id, "accepted": [token_map.map_id]}


async def test_cause_of_a_server_that_is_away_is_shown_without_its_secrets() -> None:
    telling = UpstreamConfig(
        name="telling",
        command=sys.executable,
        args=("-c", TELLS_ITS_SECRET),
        env={"KEY": SECRET},
        secrets=frozenset({SECRET}),
    )
    async with reported(config_of(telling, clock())) as (_, report):
        pass

    away, up = report["servers"]
    assert away["last_error"] == "it refused initialize: no licence for ****"
    assert (away["state"], away["tools"], away["sessions"]) == ("restarting", [], 0)
    assert up["state"] == "up"
    assert SECRET not in json.dumps(report)


async def test_keys_are_there_by_name_only(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    digest = "ab" * 32
    file.write_text(f'[keys.laptop]\nhash = "sha256:{digest}"\ncreated = 2026-11-21T00:00:00+00:00\n')
    file.chmod(0o600)

    async with reported(config_of(serve=ServeConfig(keys=file))) as (_, report):
        pass

    assert report["keys"] == {"names": ["laptop"], "problem": None}
    assert digest not in json.dumps(report)


async def test_key_file_that_broke_since_the_start_is_a_problem_of_the_report(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    async with open_services(config_of(serve=ServeConfig(keys=file))) as services:
        file.write_text("keys = 1")
        file.chmod(stat.S_IRUSR | stat.S_IWUSR)
        report = await services.status.make()

    assert report["keys"]["names"] == []
    assert str(file) in report["keys"]["problem"]


async def test_tool_that_is_not_as_it_was_pinned_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    pinned = replace(clock(), pin="warn")
    async with reported(config_of(pinned)) as (_, before):
        pass
    pins = PinFile().read()
    next(iter(pins.values()))["get_time"]["pinned"] = "00"
    PinFile().write(pins)

    async with reported(config_of(pinned)) as (_, after):
        pass

    assert before["pins"] == {"broken": [], "problem": None}
    assert after["pins"] == {"broken": [{"server": "time", "tool": "get_time"}], "problem": None}
    assert [tool["pin_broken"] for tool in after["servers"][0]["tools"]] == [True]


async def test_pins_that_nobody_asked_for_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    PinFile().path.parent.mkdir(parents=True)
    PinFile().path.write_text("no json")

    async with reported(config_of(replace(clock(), pin="off"))) as (_, report):
        pass

    assert report["pins"] == {"broken": [], "problem": None}


async def test_report_follows_a_configuration_that_was_taken_over() -> None:
    async with open_services(config_of(clock())) as services:
        await services.proxy.reload(config_of(clock(), clock("clock"), tool_search=True))
        report = await services.status.make()

    assert [server["name"] for server in report["servers"]] == ["time", "clock"]
    assert report["tool_search"] is True


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several engines the first is there, and the others are not."""

    def make(*given: Any, **named: Any) -> ScriptedEngines:
        made = ScriptedEngines(*given, **named)
        next(iter(made.routes.values())).away = None
        return made

    monkeypatch.setattr("gateway.app.services.Engines", make)


UNKNOWN = {"model": None, "context": None, "slots": None, "rewind": None, "tool_format": None}


@pytest.mark.usefixtures("engines")
async def test_engine_is_described_by_what_it_said_of_itself() -> None:
    async with open_services(config_of(engine=URL)) as services:
        report = await services.status.make()
        alone = services.status.engine()

    known = {"model": "scripted", "context": 8000, "slots": 1, "tool_format": "hermes"}
    rewind = report["engine"].pop("rewind")
    assert report["engine"] == {"kind": "url", "up": True, "state": "ready", "reason": None, **known}
    assert alone == {**report["engine"], "rewind": rewind}
    assert report["engines"] == []


async def test_gateway_without_an_engine_says_so() -> None:
    async with reported(config_of(clock())) as (services, report):
        assert services.status.engine() is None
        servers = services.status.servers()

    assert report["engine"] == {"kind": "none", "up": False, "state": "none", "reason": None, **UNKNOWN}
    assert report["maps"] == {"session": None, "accepted": []}
    assert (report["shared"], report["prompts"], report["tool_faults"]) == (None, [], [])
    assert [server["name"] for server in servers] == ["time"]
    assert "tools" not in servers[0]
    assert 0 <= report["uptime"] < 3600
    assert report["uptime"] == round(report["uptime"], 1)
    assert report["started"].endswith("+00:00")
    assert "." not in report["started"]


@pytest.mark.usefixtures("engines")
async def test_each_engine_of_several_is_shown_with_what_it_does() -> None:
    config = config_of(engines={"one": URL, "two": URL})
    async with reported(config) as (_, report):
        one, two = report["engines"]

    same = {"kind": "url", "answers": 0, "breaker": "closed"}
    assert report["engine"]["kind"] == "pool"
    assert one == {
        "name": "one",
        "up": True,
        "state": "ready",
        "reason": None,
        **same,
        "model": "scripted",
        "context": 8000,
        "slots": 1,
    }
    state = two.pop("state")
    assert state != "ready"
    assert two == {
        "name": "two",
        "up": False,
        "reason": "not there yet",
        **same,
        "model": None,
        "context": None,
        "slots": None,
    }


async def test_engine_that_is_away_is_shown_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.services.Engines", ScriptedEngines)
    async with reported(config_of(engine=URL)) as (_, report):
        state = report["engine"].pop("state")

    assert state != "ready"
    assert report["engine"] == {"kind": "url", "up": False, "reason": "not there yet", **UNKNOWN}


@pytest.mark.parametrize("miss", [None, Miss("client_changed", message=3, at=7)])
def test_request_is_reported_without_its_text(miss: Miss | None) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    figures = RequestFigures(9, 4, held=5, reused=1, recomputed=2, reason="client_changed", recall_miss=miss)
    report = prompt_report(Comparison(when, "ann\n", 12, "resp_1", figures))

    place = (None, None) if miss is None else (3, 7)
    assert (report["when"], report["caller"]) == ("2026-01-02T03:04:05+00:00", "ann\\n")
    assert (report["conversation"], report["answer"], report["reason"]) == (12, "resp_1", "client_changed")
    assert (report["message"], report["at"]) == place
    assert {name: report[name] for name in figures.counts} == figures.counts


async def page(host: str, client: tuple[str, int]) -> httpx2.Response:
    async def report() -> dict[str, object]:
        return {"pid": os.getpid()}

    transport = httpx2.ASGITransport(app=admin_app(Metrics(), Readiness(), report), client=client)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}") as http:
        return await http.get("/status")


@pytest.mark.parametrize("client", ["127.0.0.1", "::1"])
async def test_this_machine_is_shown_the_report(client: str) -> None:
    answer = await page("127.0.0.1:8601", (client, 5))

    assert (answer.status_code, answer.json()) == (200, {"pid": os.getpid()})
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("host", "client"), [("gateway.lan:8601", "127.0.0.1"), ("127.0.0.1:8601", "10.0.0.7"), ("evil.example", "::1")]
)
async def test_other_machines_and_pages_of_other_names_are_not(host: str, client: str) -> None:
    answer = await page(host, (client, 5))

    assert answer.status_code == 403
    assert "pid" not in answer.json()


async def test_metric_of_where_servers_stand_is_on_the_page() -> None:
    async with open_services(config_of(clock())) as services:
        page = services.metrics.render().decode()

    assert 'codec_upstream_sessions{server="time"} 1.0' in page
    assert 'codec_upstream_breaker{server="time"} 0.0' in page


async def test_cost_of_definitions_is_told_while_the_gateway_runs() -> None:
    async with open_services(config_of(clock())) as services, anyio.create_task_group() as tasks:
        tasks.start_soon(services.costs.follow, services.proxy, services.metrics.servers, anyio.lowlevel.checkpoint)
        with anyio.fail_after(20):
            while "codec_tool_definition_tokens{" not in services.metrics.render().decode():
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
