"""The time leaf as a bolt-on: real ids of SmolLM2 in and out, from the caches that it ships."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from bench.processes import free_port
from leaf_sdk import CodecToolCall, CodecToolResult, load_cache, load_manifest, verify_cache
from leaf_sdk.errors import ManifestInvalid
from leaf_sdk.leaf.bolt_on import CALL_PATH
from leaf_sdk.testing import tiny_map_bytes
from time_leaf.bolt_on import FOLDER, FRAGMENTS, open_tools

COMMAND = Path(sys.executable).parent / "codec-time-leaf"
NOW = datetime(2026, 11, 21, 13, 37, tzinfo=UTC)
SMOLLM = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def map_path(model_map_bytes, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("map") / "map.json"
    path.write_bytes(model_map_bytes)
    return path


@pytest.fixture(scope="module")
def tools(map_path):
    return {tool.manifest.name: tool for tool in open_tools(lambda: NOW, [map_path])}


def _call(token_map, name, arguments) -> CodecToolCall:
    written = json.dumps({"name": name, "arguments": arguments})
    return CodecToolCall(name, "tc_1", argument_ids=tuple(token_map.encode(written)), model_id=SMOLLM)


def test_the_time_is_answered_in_ids_of_the_whole_sentence(tools, model_map):
    result = tools["get_current_time"].call(_call(model_map, "get_current_time", {"timezone": "paris"}))
    said = "The time in Europe/Paris is 14:37 on Saturday, 2026-11-21 (UTC+01:00)."
    assert result.response_ids == tuple(model_map.encode(said))


def test_both_times_of_a_conversion_are_answered_in_ids(tools, model_map):
    words = {"source_timezone": "Europe/Paris", "time": "9:05", "target_timezone": "Asia/Tokyo"}
    result = tools["convert_time"].call(_call(model_map, "convert_time", words))
    assert result.response_ids == tuple(
        model_map.encode(
            "The time in Europe/Paris is 09:05 on Saturday, 2026-11-21 (UTC+01:00). "
            "The time in Asia/Tokyo is 17:05 on Saturday, 2026-11-21 (UTC+09:00)."
        )
    )


def test_without_a_timezone_the_time_is_that_of_utc(tools, model_map):
    result = tools["get_current_time"].call(_call(model_map, "get_current_time", {}))
    said = "The time in UTC is 13:37 on Saturday, 2026-11-21 (UTC+00:00)."
    assert result.response_ids == tuple(model_map.encode(said))


@pytest.mark.parametrize("arguments", [{"timezone": "Nowhere"}, {"timezone": 7}, {"timezone": None}])
def test_a_place_that_is_none_is_an_error_answer(tools, model_map, arguments):
    result = tools["get_current_time"].call(_call(model_map, "get_current_time", arguments))
    assert (result.kind, result.code) == ("error", "E_BAD_ARG")


def test_the_shipped_caches_hold_what_the_tools_say_for_three_models(model_map):
    for name, texts in FRAGMENTS.items():
        manifest = load_manifest(FOLDER / name)
        assert manifest.name == name
        caches = [load_cache(manifest, binding) for binding in manifest.models]
        assert len(caches) == 3
        for cache in caches:
            assert {key: held.source.text for key, held in cache.fragments.items()} == texts
        assert verify_cache(caches[0], model_map) == []


def test_a_map_without_shipped_ids_is_refused_by_its_hashes(tmp_path):
    (tmp_path / "map.json").write_bytes(tiny_map_bytes())
    with pytest.raises(ManifestInvalid, match="no ids for"):
        open_tools(lambda: NOW, [tmp_path / "map.json"])


def test_the_command_serves_the_bolt_on_and_leaves_on_interrupt(map_path, model_map):
    port = free_port()
    environment = {**os.environ, "CODEC_MAP_PATH": str(map_path)}
    command = [COMMAND, "--bolt-on", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            assert "bolt-on: get_current_time, convert_time" in child.stderr.readline()
            body = _call(model_map, "get_current_time", {"timezone": "Asia/Tokyo"}).to_bytes()
            headers = {"content-type": "application/x-msgpack"}
            answer = httpx2.post(f"http://127.0.0.1:{port}{CALL_PATH}", content=body, headers=headers, timeout=60)
            said = model_map.decode(CodecToolResult.from_bytes(answer.content).response_ids)
            assert said.startswith("The time in Asia/Tokyo is ")
        finally:
            child.send_signal(signal.SIGINT)
        assert child.wait(30) in (0, 130)


@pytest.mark.parametrize("environment", [{}, {"CODEC_MAP_PATH": "/nowhere/map.json"}])
def test_the_command_does_not_start_without_a_map_it_has_ids_for(environment, start_here):
    done = start_here(environment, "--bolt-on", "127.0.0.1:1")
    assert done.code == 3
    assert "not started" in done.err
