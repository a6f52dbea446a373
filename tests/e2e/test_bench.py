"""`codec-gateway bench` before real servers: llama.cpp's own, the gateway, one that speaks vLLM's wire, in one run."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.exit_codes import FAILED, OK
from gateway.engine.packaged_model import packaged_model
from tests.e2e.conftest import RunningGateway, clean_environment

pytestmark = pytest.mark.engine


def bench(folder: Path, *words: str, code: int = OK) -> tuple[dict[str, Any], str]:
    """The result, and what was printed."""
    command = [sys.executable, "-m", "gateway", "bench", *words, "--timeout", "120", "--seconds", "280"]
    done = subprocess.run(
        [*command, "--json", str(folder / "result.json"), "--svg", str(folder / "result.svg")],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads((folder / "result.json").read_text()), done.stdout


def test_one_command_measures_three_kinds_of_servers(
    tmp_path: Path, site: RunningGateway, engine_url: str, vllm_url: str
) -> None:
    urls = [site.url, engine_url, vllm_url]
    lengths = ("--prompt-tokens", "40", "--answer-tokens", "uniform:6-12")

    before = site.metric("codec_generation_prompt_ids_total")
    words = ("--requests", "4", "--turns", "2", "--ids", "--apart", "--warmup", "0")

    report, printed = bench(tmp_path, *urls, *lengths, *words)

    # What it says was processed is what the gateway itself counted.
    counted = site.metric("codec_generation_prompt_ids_total") - before
    assert report["servers"][0]["prompt"]["processed"] == counted

    assert [server["url"] for server in report["servers"]] == [f"{url}/v1" for url in urls]
    for server in report["servers"]:
        assert (server["answered"], server["failed"], server["unfinished"]) == (4, 0, 0)
        assert 0 < server["first_ms"]["p50"] < server["whole_ms"]["p50"]
        assert server["between_ms"]["count"] > 0
        assert 4 * 6 <= server["completion_tokens"]["count"] * server["completion_tokens"]["most"] <= 4 * 12
        assert server["prompt"]["told"] == 4
        assert server["url"] in printed
    ours, llama, vllm = ([each for each in report["samples"] if each["url"] == f"{url}/v1"] for url in urls)
    # The same request by the same template; the gateway offers tools of its own beside it.
    first = [[each["prompt_tokens"] for each in samples if each["step"] == 0] for samples in (ours, llama, vllm)]
    assert first[1] == first[2]
    assert all(with_tools > 2 * without > 80 for with_tools, without in zip(first[0], first[1], strict=True))
    # The second request of a conversation finds the first again, and its answer but for the last id.
    for before, after in zip(ours[::2], ours[1::2], strict=True):
        assert after["cached_tokens"] >= before["prompt_tokens"]
    # Both gave ids, and llama.cpp's server none.
    beside_llama, beside_vllm = report["comparisons"]
    assert beside_llama["ids"] == {"same": 0, "other": 0}
    assert sum(beside_vllm["ids"].values()) == 4
    assert sum(beside_llama["text"].values()) == 4
    assert (tmp_path / "result.svg").read_text().count("<rect") == 4 * 3


def test_tools_of_the_client_are_called_where_the_server_can(
    tmp_path: Path, start_gateway: Callable[..., RunningGateway], engine_url: str
) -> None:
    gateway = start_gateway({}, "--engine", engine_url, "--model", str(packaged_model()))
    words = ("--tools", "--requests", "4", "--warmup", "0", "--prompt-tokens", "20", "--answer-tokens", "8", "--apart")

    report, printed = bench(tmp_path, gateway.url, engine_url, *words, code=FAILED)

    ours, llama = report["servers"]
    assert (ours["answered"], ours["failed"]) == (4, 0), ours["errors"]
    # The model's template knows no tools, and llama.cpp's server then leaves them out.
    assert (llama["answered"], llama["errors"]["no call"]["count"]) == (0, 2)
    assert "2 x no call" in printed


def test_frames_are_measured_beside_json_of_the_same_gateway(tmp_path: Path, site: RunningGateway) -> None:
    words = ("--requests", "3", "--answer-tokens", "24", "--prompt-tokens", "20", "--ids")

    report, _ = bench(tmp_path, site.url, f"{site.url}#protobuf", *words)

    json_events, frames = report["servers"]
    assert (frames["answered"], frames["failed"]) == (3, 0), frames["errors"]
    assert frames["bytes_a_token"]["p50"] < json_events["bytes_a_token"]["p50"] / 4
    # Few ids that are flushed often may take more bytes compressed than plain.
    assert json_events["compression"] == 1.0 != frames["compression"]
    (beside,) = report["comparisons"]
    # A greedy model may choose otherwise where its cache holds something else; ids of both are compared all the same.
    assert sum(beside["ids"].values()) == 3
    # Frames hold no text.
    assert beside["text"] == {"same": 0, "other": 0}


def test_completions_are_measured_as_chat_is(tmp_path: Path, site: RunningGateway) -> None:
    report, _ = bench(
        tmp_path, site.url, "--api", "completions", "--requests", "2", "--answer-tokens", "5", "--prompt-tokens", "20"
    )

    (server,) = report["servers"]
    assert server["answered"] == 2
    assert server["completion_tokens"]["most"] <= 5
