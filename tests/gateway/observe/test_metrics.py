"""The metrics: their names, their bounds, and the numbers that come out."""

import asyncio
import re
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.exposition import (
    CHAT_OUTCOMES,
    MAPS_BOUND,
    OTHER,
    REASONS,
    SERVERS_BOUND,
    BoundedLabel,
)
from gateway.observe.metrics import Metrics
from leaf_sdk.leaf.verify import Reason

MAP = "sha256:" + "ab" * 32
OTHER_MAP = "sha256:" + "cd" * 32


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_shim_counts_calls_ids_and_seconds_by_map() -> None:
    metrics = Metrics()
    metrics.shim_tokenized(MAP, ids=5, seconds=0.25)
    metrics.shim_tokenized(MAP, ids=7, seconds=0.5)
    metrics.shim_tokenized(OTHER_MAP, ids=1, seconds=1.0)
    metrics.shim_detokenized(MAP)

    assert read(metrics, "codec_shim_tokenize_calls_total", map=MAP) == 2
    assert read(metrics, "codec_shim_ids_total", map=MAP) == 12
    assert read(metrics, "codec_shim_seconds_total", map=MAP) == 0.75
    assert read(metrics, "codec_shim_detokenize_calls_total", map=MAP) == 1
    assert read(metrics, "codec_shim_tokenize_calls_total", map=OTHER_MAP) == 1


def test_leaf_counts_bypasses_ids_and_rejections() -> None:
    metrics = Metrics()
    metrics.leaf_bypassed(MAP, ids=9)
    metrics.leaf_rejected("special")
    metrics.leaf_rejected("special")
    metrics.map_mismatched()

    assert read(metrics, "codec_leaf_bypasses_total", map=MAP) == 1
    assert read(metrics, "codec_leaf_ids_total", map=MAP) == 9
    assert read(metrics, "codec_leaf_rejected_total", reason="special") == 2
    assert read(metrics, "codec_map_mismatches_total") == 1


def test_upstream_and_tool_calls_are_counted_by_server() -> None:
    metrics = Metrics()
    metrics.upstream_up("time", True)
    metrics.upstream_restarted("time")
    metrics.tool_called("time", "ok", 0.02)
    metrics.tool_called("time", "tool_error", 0.2)

    assert read(metrics, "codec_upstream_up", server="time") == 1
    assert read(metrics, "codec_upstream_restarts_total", server="time") == 1
    assert read(metrics, "codec_tool_calls_total", server="time", outcome="ok") == 1
    assert read(metrics, "codec_tool_calls_total", server="time", outcome="tool_error") == 1
    assert read(metrics, "codec_tool_call_seconds_count", server="time") == 2
    assert read(metrics, "codec_tool_call_seconds_sum", server="time") == pytest.approx(0.22)
    metrics.upstream_up("time", False)
    assert read(metrics, "codec_upstream_up", server="time") == 0


def test_generation_counts_processed_reused_and_generated_ids() -> None:
    metrics = Metrics()
    metrics.engine_up(True)
    metrics.generation_finished(prompt_n=10, cache_n=90, generated=20, ttft=0.1, seconds=1.5)
    metrics.ids_spliced("leaf", 8)
    metrics.ids_repaired(repaired=3, ambiguous=2, missed=1)
    metrics.chat_request("ok")

    assert read(metrics, "codec_engine_up") == 1
    assert read(metrics, "codec_generations_total") == 1
    assert read(metrics, "codec_generation_prompt_ids_total") == 10
    assert read(metrics, "codec_generation_reused_ids_total") == 90
    assert read(metrics, "codec_generation_ids_total") == 20
    assert read(metrics, "codec_generation_first_id_seconds_sum") == 0.1
    assert read(metrics, "codec_generation_seconds_sum") == 1.5
    assert read(metrics, "codec_spliced_ids_total", source="leaf") == 8
    assert [read(metrics, "codec_repaired_ids_total", result=r) for r in ("repaired", "ambiguous", "missed")] == [
        3,
        2,
        1,
    ]
    assert read(metrics, "codec_chat_requests_total", outcome="ok") == 1


def test_every_reason_of_the_sdk_has_its_own_label() -> None:
    assert {*get_args(Reason), "map", OTHER} == set(REASONS)


def test_word_outside_its_list_is_counted_as_other() -> None:
    metrics = Metrics()
    metrics.leaf_rejected('x"} 1\nevil_metric 2')
    metrics.tool_called("time", "exploded", 0.1)
    metrics.chat_request("?")
    metrics.shim_tokenized("gpt-4", ids=1, seconds=0.1)
    metrics.upstream_restarted("time\n")

    assert read(metrics, "codec_leaf_rejected_total", reason=OTHER) == 1
    assert read(metrics, "codec_tool_calls_total", server="time", outcome=OTHER) == 1
    assert read(metrics, "codec_chat_requests_total", outcome=OTHER) == 1
    assert read(metrics, "codec_shim_tokenize_calls_total", map=OTHER) == 1
    assert read(metrics, "codec_upstream_restarts_total", server=OTHER) == 1
    assert b"evil" not in metrics.render()


@given(st.lists(st.sampled_from([f"sha256:{n:064x}" for n in range(MAPS_BOUND * 3)]), min_size=1, max_size=200))
def test_number_of_maps_is_bounded_and_no_call_is_lost(map_ids: list[str]) -> None:
    metrics = Metrics()
    for map_id in map_ids:
        metrics.shim_tokenized(map_id, ids=1, seconds=0.0)

    shim = metrics.get_shim_metrics()
    assert len(shim["by_map"]) <= MAPS_BOUND + 1
    assert shim["tokenize_calls"] == len(map_ids) == sum(m["tokenize_calls"] for m in shim["by_map"].values())


def test_number_of_servers_is_bounded() -> None:
    metrics = Metrics()
    for number in range(SERVERS_BOUND + 10):
        metrics.upstream_restarted(f"server-{number}")

    assert read(metrics, "codec_upstream_restarts_total", server=OTHER) == 10


def test_admitted_value_stays_admitted_when_the_bound_is_reached() -> None:
    label = BoundedLabel(re.compile("[a-z]"), 2)

    assert [label.admit(value) for value in ("a", "b", "c", "a", "!")] == ["a", "b", OTHER, "a", OTHER]


def test_shim_metrics_tell_what_was_spared() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    metrics = Metrics()
    metrics.shim_tokenized(MAP, ids=5, seconds=0.25)
    metrics.leaf_bypassed(MAP, ids=9)
    metrics.leaf_bypassed(OTHER_MAP, ids=1)
    metrics.shim_detokenized(OTHER_MAP)
    metrics.leaf_rejected("text")
    metrics.map_mismatched()

    shim = metrics.get_shim_metrics()

    since = datetime.fromisoformat(shim.pop("since"))
    assert before <= since <= datetime.now(UTC)
    empty = {
        "tokenize_calls": 0,
        "detokenize_calls": 0,
        "leaf_bypasses": 0,
        "shim_ids": 0,
        "leaf_ids": 0,
        "shim_seconds": 0,
    }
    assert shim == {
        "tokenize_calls": 1,
        "detokenize_calls": 1,
        "leaf_bypasses": 2,
        "by_map": {
            MAP: {**empty, "tokenize_calls": 1, "leaf_bypasses": 1, "shim_ids": 5, "leaf_ids": 9, "shim_seconds": 0.25},
            OTHER_MAP: {**empty, "detokenize_calls": 1, "leaf_bypasses": 1, "leaf_ids": 1},
        },
        "mismatches": 1,
        "rejected": {"text": 1},
    }


def test_two_gateways_in_one_process_share_no_number() -> None:
    first, second = Metrics(), Metrics()
    first.map_mismatched()

    assert second.get_shim_metrics()["mismatches"] == 0


def test_page_parses_as_prometheus_text_with_our_conventions() -> None:
    metrics = Metrics()
    metrics.shim_tokenized(MAP, ids=5, seconds=0.25)
    metrics.tool_called("time", "ok", 0.02)

    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}

    ours = {name for name in families if not name.startswith("process_")}
    assert ours == {described.name.removesuffix("_total") for described in metrics.described}
    assert all(name.startswith("codec_") for name in ours)
    for described in metrics.described:
        assert (described.kind == "counter") == described.name.endswith("_total")
        assert described.kind != "histogram" or described.name.endswith("_seconds")
    assert not any("_created" in sample.name for family in families.values() for sample in family.samples)


def test_fixed_words_have_a_zero_from_the_start() -> None:
    metrics = Metrics()

    assert [read(metrics, "codec_leaf_rejected_total", reason=reason) for reason in REASONS] == [0] * len(REASONS)
    assert [read(metrics, "codec_chat_requests_total", outcome=o) for o in CHAT_OUTCOMES] == [0] * len(CHAT_OUTCOMES)
    assert read(metrics, "codec_build_info", version="0.1.0") == 1


def test_tasks_are_those_of_the_loop_that_asks_and_none_outside_of_one() -> None:
    metrics = Metrics()

    async def ask() -> tuple[float | None, float | None]:
        alone = read(metrics, "codec_tasks")
        waiting = asyncio.ensure_future(asyncio.Event().wait())
        both = read(metrics, "codec_tasks")
        waiting.cancel()
        return alone, both

    assert read(metrics, "codec_tasks") == 0
    assert asyncio.run(ask()) == (1, 2)
