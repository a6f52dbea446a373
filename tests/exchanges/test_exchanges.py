"""The recorded exchanges through the gateway: real processes, a replay server behind, raw clients of both eras."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.processes import serving_gateway, write_config
from tests.exchanges.compare import differences
from tests.exchanges.masks import masked
from tests.exchanges.play import play
from tests.exchanges.servers import SERVERS
from tests.exchanges.wires import HttpWire, StdioWire

pytestmark = pytest.mark.anyio
SETTINGS = '[engine]\nkind = "none"\n\n[tokens]\nmap = "none"\n'
ROOT = Path(__file__).parents[2]


def recording(name: str) -> dict[str, Any]:
    return json.loads(SERVERS[name].recording.read_text(encoding="utf-8"))


def replaying(name: str, report: Path | None = None) -> dict[str, Any]:
    """The replay server of this recording, as a client's configuration names it."""
    more = [str(report)] if report else []
    # Not by its module's name: the child would need this folder on its path.
    env = {"PYTHONPATH": str(ROOT)}
    return {
        "command": sys.executable,
        "args": ["-m", "tests.exchanges.replay", str(SERVERS[name].recording), *more],
        "env": env,
    }


@pytest.fixture(scope="module")
def gateway_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The address of a gateway before the replay server of a name; started once for both eras."""
    with ExitStack() as stack:
        started: dict[str, str] = {}

        def url(name: str) -> str:
            if name not in started:
                folder = tmp_path_factory.mktemp(name)
                config = {name: replaying(name, folder / "report")}
                started[name] = stack.enter_context(serving_gateway(folder, config, settings=SETTINGS)).url + "/mcp"
            return started[name]

        yield url


@pytest.mark.parametrize("name", SERVERS)
async def test_replay_server_says_what_the_recorded_one_said(name: str) -> None:
    command = replaying(name)
    wire = StdioWire([command["command"], *command["args"]], cwd=ROOT)

    played = await play(wire, SERVERS[name].steps, modern=False)

    assert list(differences(recording(name), played, modern=False)) == []
    assert played["greeting"] == recording(name)["greeting"]
    assert played["aside"] == recording(name)["aside"]


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize("name", SERVERS)
async def test_exchanges_over_http_are_those_of_the_server_itself(
    name: str, era: str, gateway_url: Callable[[str], str]
) -> None:
    modern = era == "modern"

    played = await play(HttpWire(gateway_url(name), modern=modern), SERVERS[name].steps, modern=modern)

    assert list(differences(recording(name), played, modern=modern)) == []


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_exchanges_over_stdio_are_those_of_the_server_itself(era: str, tmp_path: Path) -> None:
    name, modern = "everything", era == "modern"
    config = write_config(tmp_path, {name: replaying(name)}, SETTINGS)
    wire = StdioWire([sys.executable, "-m", "gateway", "stdio", "--config", str(config)])

    played = await play(wire, SERVERS[name].steps, modern=modern)

    assert list(differences(recording(name), played, modern=modern)) == []


async def test_cancelled_call_is_cancelled_at_the_server_and_its_id_there_is_the_one_of_the_call(
    tmp_path: Path,
) -> None:
    report = tmp_path / "report"
    steps = [step for step in SERVERS["everything"].steps if "cancelled" in step.name]
    with serving_gateway(
        tmp_path / "gateway", {"replayed": replaying("everything", report)}, settings=SETTINGS
    ) as gateway:
        await play(HttpWire(f"{gateway.url}/mcp", modern=False), steps, modern=False)
    got = [json.loads(line) for line in report.read_text().splitlines()]

    calls = {message["id"]: message["params"] for message in got if message.get("method") == "tools/call"}
    cancelled = [m["params"]["requestId"] for m in got if m.get("method") == "notifications/cancelled"]

    assert [calls[number]["arguments"]["steps"] for number in cancelled] == [800]


async def test_servers_roots_are_the_clients(tmp_path: Path) -> None:
    with serving_gateway(tmp_path / "gateway", {"files": replaying("filesystem")}, settings=SETTINGS) as gateway:
        played = await play(HttpWire(f"{gateway.url}/mcp", modern=False), SERVERS["filesystem"].steps[:2], modern=False)

    assert played["aside"] == recording("filesystem")["aside"]


def test_recordings_hold_at_least_60_exchanges_of_every_kind() -> None:
    exchanges = [exchange for name in SERVERS for exchange in recording(name)["exchanges"]]
    methods = {exchange["method"] for exchange in exchanges}
    heard = {push.get("method") or push["asked"]["method"] for exchange in exchanges for push in exchange["heard"]}

    assert len(exchanges) >= 60
    assert methods >= {
        "completion/complete",
        "logging/setLevel",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "tools/call",
        "tools/list",
    }
    assert heard >= {
        "elicitation/create",
        "notifications/message",
        "notifications/progress",
        "notifications/resources/updated",
        "sampling/createMessage",
    }


def test_difference_in_one_field_is_told_with_its_step() -> None:
    direct = recording("memory")
    other = json.loads(json.dumps(direct))
    del other["exchanges"][1]["result"]["structuredContent"]

    lines = list(differences(direct, other, modern=False))

    assert len(lines) == 1
    assert lines[0].startswith("graph of nothing: result: expected ")


def test_modern_result_without_its_kind_is_a_difference() -> None:
    direct = recording("memory")

    lines = list(differences(direct, direct, modern=True))

    assert any(line == "list the tools: resultType is None, expected 'complete'" for line in lines)
    assert any(line == "list the tools: ttlMs and cacheScope are missing" for line in lines)


def test_masks_leave_all_but_times_ids_and_paths_alone() -> None:
    said = {"text": "at 3:04:05\u202fPM in /home/x/a.txt", "id": "5f3b2c1a-0d4e-4f6a-8b7c-9d0e1f2a3b4c", "n": 30405}

    assert masked(said, ["/home/x"]) == {"text": "at <time> in <folder>/a.txt", "id": "<uuid>", "n": 30405}
