"""The operator's overlay, laid over docker-compose.yml as compose would do it, and its tool called by a real model."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.check.compose import networks_of, read_compose, started_by
from gateway.config.load import load_config
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.vocab import TokenMap
from tests.pages import Clone

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "compose"
CONFIG = "/etc/codec-gateway/codec-gateway.toml"


def target(volume: str) -> str:
    """Where a volume is mounted."""
    return volume.split(":")[1]


def laid_over(base: Any, more: Any, key: str = "") -> Any:
    """What compose makes of two files: tables are joined, volumes by where they are mounted, the rest is replaced."""
    if isinstance(base, dict) and isinstance(more, dict):
        joined = {name: laid_over(base[name], each, name) for name, each in more.items() if name in base}
        return {**base, **more, **joined}
    if key == "volumes":
        return [volume for volume in base if target(volume) not in set(map(target, more))] + more
    return more


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    both = laid_over(read_compose(ROOT / "docker-compose.yml", {}), read_compose(FOLDER / "compose.override.yml", {}))
    return started_by(both, "cpu")


def test_tool_of_the_overlay_is_confined_as_the_others_are(services: dict[str, Any]) -> None:
    notes, like = services["notes"], services["time-leaf"]

    for key in ("read_only", "tmpfs", "cap_drop", "security_opt", "restart", "logging", "image", "environment"):
        assert notes[key] == like[key], key
    assert dict(networks_of(notes)) == {"tools": []}
    assert notes["deploy"]["resources"]["limits"]["memory"]
    assert [volume for volume in notes["volumes"] if not volume.endswith(":ro")] == []
    assert "ports" not in notes


def test_gateway_of_the_overlay_waits_for_its_tools_and_reads_its_own_file(services: dict[str, Any]) -> None:
    gateway = services["gateway"]

    assert [volume for volume in gateway["volumes"] if target(volume) == CONFIG] == [
        f"./examples/compose/codec-gateway.toml:{CONFIG}:ro"
    ]
    assert {"notes", "time-leaf", "model"} <= set(gateway["depends_on"])
    assert list(services).index("notes") < list(services).index("gateway")
    assert gateway["environment"]["CODEC_GATEWAY_ENGINE__URL"] == "http://llama:8080"


def test_files_that_the_overlay_mounts_are_there(services: dict[str, Any]) -> None:
    mounted = [volume for each in services.values() for volume in each.get("volumes", []) if volume.startswith("./")]

    assert "./examples/compose/notes.py:/tool/notes.py:ro" in mounted
    assert [volume for volume in mounted if not (ROOT / volume.partition(":")[0]).exists()] == []


def test_servers_of_the_overlay_are_its_services_on_the_network_of_tools(services: dict[str, Any]) -> None:
    config = load_config(FOLDER / "codec-gateway.toml", environ={}, cwd=FOLDER)

    assert {server.url for server in config.upstreams} == {"http://time-leaf:8300/mcp", "http://notes:8300/mcp"}
    assert all("tools" in dict(networks_of(services[name])) for name in ("time-leaf", "notes", "gateway"))
    assert str(config.audit.path).startswith(target("state:/state"))


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    made = Clone(tmp_path)
    yield made
    made.close()


ASKED = """
codec-gateway serve --config gateway.toml
curl -s http://127.0.0.1:8600/v1/chat/completions -H 'Content-Type: application/json' -d '{
  "messages": [{"role": "user", "content": "What do my notes say about coffee?"}],
  "tool_choice": {"type": "function", "function": {"name": "note"}}, "temperature": 0
}'
"""


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_model_reads_the_ids_of_the_tool(services: dict[str, Any], clone: Clone, model_map: TokenMap) -> None:
    entry, script = services["notes"]["entrypoint"], FOLDER / "notes.py"
    health = services["notes"]["healthcheck"]["test"]
    address = f"127.0.0.1:{clone.ports['8300']}"
    (clone.folder / "gateway.toml").write_text(
        f'engine = "embedded"\n[upstreams.notes]\nurl = "http://{address}/mcp"\n'
    )
    environment = {"CODEC_MAP_PATH": str(packaged_model()), "CODEC_MAP_HASH": model_map.map_id}
    with subprocess.Popen([sys.executable, script, address], env=clone.environment | environment) as process:
        try:
            clone.type(f"until {' '.join(health[1:])}; do sleep 0.2; done")
            (result,) = json.loads(clone.type(ASKED))["codec"]["tool_results"]
        finally:
            process.kill()

    assert (result["text"], result["source"]) == ("Two spoons a cup, water at 93 degrees.", "leaf")
    assert entry == ["python", "/tool/notes.py"]
    assert services["notes"]["environment"]["CODEC_MAP_HASH"] == model_map.map_id
