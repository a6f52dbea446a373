"""Twenty recorded public servers behind one gateway: the Python SDK's client gets of each what it said."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.processes import serving_gateway
from tests.exchanges.public import recording
from tests.exchanges.public.__main__ import ask
from tests.exchanges.public.catalog import SERVERS
from tests.exchanges.public.compare import differences, even

SETTINGS = '[engine]\nkind = "none"\n\n[tokens]\nmap = "none"\n'
ROOT = Path(__file__).parents[3]
RECORDED = recording.read()


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("public")
    servers: dict[str, Any] = {}
    for name, parts in RECORDED.items():
        file = folder / f"{name}.json"
        file.write_text(json.dumps(recording.replayed(parts)), encoding="utf-8")
        arguments = ["-m", "tests.exchanges.replay", str(file)]
        servers[name] = {"command": sys.executable, "args": arguments, "env": {"PYTHONPATH": str(ROOT)}}
    calls = {name: {"tool": SERVERS[name].tool, "arguments": {}} for name in RECORDED}
    with serving_gateway(folder / "gateway", servers, settings=SETTINGS) as gateway:
        return ask("python", {name: {"url": f"{gateway.url}/mcp/{name}"} for name in RECORDED}, calls)


def test_recording_has_each_server_of_the_catalog_ten_of_each_registry() -> None:
    assert list(RECORDED) == list(SERVERS)
    assert [server.where == "node" for server in SERVERS.values()] == [True] * 10 + [False] * 10


@pytest.mark.parametrize("name", SERVERS)
def test_lists_and_call_are_those_of_the_server_itself(name: str, through: dict[str, Any]) -> None:
    assert list(differences({name: even(RECORDED)[name]}, {name: through[name]})) == []


@pytest.mark.parametrize("part", ["tools", "prompts", "resources", "templates", "call"])
def test_part_that_is_lost_or_changed_is_told(part: str) -> None:
    other = {"hello": {**RECORDED["hello"], part: []}}

    lines = list(differences({"hello": RECORDED["hello"]}, other))

    assert [line.partition(": expected")[0] for line in lines] == [f"hello: {part}"]
