"""`codec-gateway bench` before real servers: llama.cpp's own, the gateway, one that speaks vLLM's wire, in one run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.wire.streams import FOLDER
from gateway.cli.exit_codes import FAILED, OK
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.wire import CODINGS
from tests.cases import IN_FULL
from tests.conftest import Ran, llama_server
from tests.e2e.conftest import RunningGateway, running_gateway

pytestmark = pytest.mark.engine


Bench = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture
def bench(tmp_path: Path, command: Callable[..., Ran]) -> Bench:
    """Runs `codec-gateway bench`, and gives its result and what it printed."""
    files = ("--json", tmp_path / "result.json", "--svg", tmp_path / "result.svg")

    def go(*words: str, code: int = OK) -> tuple[dict[str, Any], str]:
        ran = command("bench", *words, "--timeout", "120", "--seconds", "280", *files)
        assert ran.code == code, ran.out + ran.err
        return json.loads((tmp_path / "result.json").read_text()), ran.out

    return go


def test_one_command_measures_three_kinds_of_servers(
    tmp_path: Path, bench: Bench, site: RunningGateway, engine_url: str, vllm_url: str
) -> None:
    urls = [site.url, engine_url, vllm_url]
    lengths = ("--prompt-tokens", "40", "--answer-tokens", "uniform:6-12")

    before = site.metric("codec_generation_prompt_ids_total")
    words = ("--requests", "4", "--turns", "2", "--ids", "--apart", "--warmup", "0")

    report, printed = bench(*urls, *lengths, *words)

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
    bench: Bench, toolless: RunningGateway, fast_url: str
) -> None:
    words = ("--tools", "--requests", "4", "--warmup", "0", "--prompt-tokens", "20", "--answer-tokens", "8", "--apart")

    report, printed = bench(toolless.url, fast_url, *words, code=FAILED)

    ours, llama = report["servers"]
    assert (ours["answered"], ours["failed"]) == (4, 0), ours["errors"]
    # The model's template knows no tools, and llama.cpp's server then leaves them out.
    assert (llama["answered"], llama["errors"]["no call"]["count"]) == (0, 2)
    assert "2 x no call" in printed


def test_frames_are_measured_beside_json_of_the_same_gateway(bench: Bench, site: RunningGateway) -> None:
    words = ("--requests", "3", "--answer-tokens", "24", "--prompt-tokens", "20", "--ids")

    report, _ = bench(site.url, f"{site.url}#protobuf", *words)

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


def test_completions_are_measured_as_chat_is(bench: Bench, site: RunningGateway) -> None:
    report, _ = bench(
        site.url, "--api", "completions", "--requests", "2", "--answer-tokens", "5", "--prompt-tokens", "20"
    )

    (server,) = report["servers"]
    assert server["answered"] == 2
    assert server["completion_tokens"]["most"] <= 5


@pytest.fixture(scope="module")
def fast_url(one_layer: Path) -> Iterator[str]:
    """A real llama.cpp server that answers at once."""
    with llama_server(one_layer) as url:
        yield url


@pytest.fixture(scope="module")
def toolless(tmp_path_factory: pytest.TempPathFactory, fast_url: str, one_layer: Path) -> Iterator[RunningGateway]:
    """A gateway over such a server that offers no tools of its own, with dictionaries for both formats."""
    folder = tmp_path_factory.mktemp("toolless")
    files = {form: FOLDER / "dictionaries" / f"{form}.zstd" for form in ("msgpack", "protobuf")}
    lines = "".join(f'dictionary_{form} = "{path}"\n' for form, path in files.items())
    (folder / "codec-gateway.toml").write_text(f"[wire]\n{lines}")
    with running_gateway(folder, {}, "--engine", fast_url, "--model", str(one_layer)) as gateway:
        yield gateway


@pytest.mark.timeout(900)
def test_crossover_measures_every_form_in_every_coding_in_one_run(bench: Bench, toolless: RunningGateway) -> None:
    forms = [f"{toolless.url}#{form},{coding}" for form in ("json", "msgpack", "protobuf") for coding in CODINGS]

    report, printed = bench(*forms, "--preset", "crossover", "--requests", "2")

    assert [(each["answered"], each["failed"]) for each in report["servers"]] == [(2, 0)] * len(forms), printed
    sizes: dict[tuple[str, int], float] = {}
    for row in report["by_answer"]:
        assert row["completion_tokens"]["p50"] <= row["answer_tokens"]
        sizes[row["url"].partition("#")[2], row["answer_tokens"]] = row["body_bytes"]["p50"]
    assert {tokens for _, tokens in sizes} == {16, 32}
    for tokens in (16, 32):
        assert sizes["protobuf,identity", tokens] < sizes["msgpack,identity", tokens] < sizes["json,identity", tokens]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("preset", "requests"), [("timed", 1), ("handoff-text", 1), ("loop", 2)])
def test_preset_is_answered_by_a_gateway_and_by_the_real_engine_behind_it(
    bench: Bench, toolless: RunningGateway, fast_url: str, preset: str, requests: int
) -> None:
    # The model's template knows no tools, and llama.cpp's server then makes no call.
    urls = [toolless.url, *([fast_url] if preset != "loop" else [])]

    report, printed = bench(*urls, "--preset", preset, "--apart", "--requests", str(requests), "--warmup", "0")

    for server in report["servers"]:
        assert (server["answered"], server["failed"], server["unfinished"]) == (requests, 0, 0), printed
        assert server["cpu_ms"] > 0
        prompt, answer = server["prompt_tokens"]["p50"], server["completion_tokens"]["most"]
        assert {"timed": 25, "handoff-text": 900, "loop": 60}[preset] <= prompt <= 1200
        assert 1 <= answer <= {"timed": 64, "loop": 128}.get(preset, 1)


def test_prompt_of_ids_is_passed_on_to_the_engine_that_processes_it(
    bench: Bench, start_gateway: Callable[..., RunningGateway], trained_engine_url: str
) -> None:
    gateway = start_gateway({}, "--engine", trained_engine_url, "--model", str(packaged_model()))
    words = ("--preset", "handoff-ids", "--apart", "--requests", "1", "--warmup", "0")

    report, printed = bench(gateway.url, trained_engine_url, *words)

    ours, engine = report["servers"]
    for server in (ours, engine):
        assert (server["answered"], server["failed"], server["unfinished"]) == (1, 0, 0), printed
        assert 1022 <= server["prompt_tokens"]["p50"] <= 1200
        assert server["completion_tokens"]["most"] == 1
    assert 0 < ours["cpu_ms"] < engine["cpu_ms"] / 5


@pytest.mark.in_full
@pytest.mark.timeout(900)
def test_preset_of_long_answers_goes_on_until_the_slot_is_full(
    tmp_path: Path, bench: Bench, start_gateway: Callable[..., RunningGateway], one_layer: Path
) -> None:
    (tmp_path / "codec-gateway.toml").write_text(
        f'[engine]\nkind = "embedded"\nmodel = "{one_layer}"\ncontext = 16384\nslots = 1\nthreads = 1\n'
    )

    # The longer one takes twice as long, and differs in nothing else.
    lengths = [4096, 8192] if IN_FULL else [4096]
    words = ("--preset", "long", "--requests", str(len(lengths)), "--warmup", "0")

    report, printed = bench(f"{start_gateway({}).url}#protobuf", *words)

    assert report["servers"][0]["answered"] == len(lengths), printed
    assert [row["answer_tokens"] for row in report["by_answer"]] == lengths
