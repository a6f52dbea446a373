"""The metrics: their names, their bounds, and the numbers that come out."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.backend_metrics import SHARED_KINDS, SHARED_RESULTS
from gateway.observe.client_metrics import AUTH_FAILURES, END_REASONS, WorkerMetrics
from gateway.observe.exposition import (
    CHAT_OUTCOMES,
    ERROR_KINDS,
    LOSS_REASONS,
    MAPS_BOUND,
    OTHER,
    REASONS,
    BoundedLabel,
)
from gateway.observe.metrics import Metrics
from leaf_sdk.leaf.verify import Reason
from tests.cases import each_of

MAP = "sha256:" + "ab" * 32
OTHER_MAP = "sha256:" + "cd" * 32


FIXED = {
    "codec_leaf_rejected": {"reason": ["shape", "map", "range", "special", "text", "other"]},
    "codec_notifications_dropped": {"reason": ["nobody", "slow_client", "other"]},
    "codec_spliced_ids": {"source": ["leaf", "shim", "scaffold"]},
    "codec_chat_requests": {"outcome": ["ok", "client_error", "engine_error", "cancelled", "other"]},
    "codec_prompt_ids_lost": {"reason": [*LOSS_REASONS]},
    "codec_auth_failures": {"reason": [*AUTH_FAILURES]},
    "codec_requests_limited": {"limit": ["rate", "concurrency", "tries", "signatures"]},
    "codec_bound_refusals": {
        "kind": ["session", "parked_call", "subscription", "watched_resource", "client_session", "queued_call"],
        "limit": ["share", "bound"],
    },
    "codec_connections_ended": {"reason": [*END_REASONS]},
    "codec_slot_file_moves": {"way": ["save", "restore"]},
    "codec_slot_file_moved_bytes": {"way": ["save", "restore"]},
    "codec_slot_files_refused": {
        "reason": ["gone", "link", "owner", "mode", "size", "digest", "note", "engine", "save"]
    },
    "codec_shared_operations": {"kind": [*SHARED_KINDS], "result": [*SHARED_RESULTS]},
    "codec_bolt_on_calls": {"form": ["raw", "encoded", "text", "refused"]},
    "codec_mcp_errors": {"kind": [*ERROR_KINDS.values(), "other"]},
}


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
    assert len(shim["by_map"]) <= 32 + 1
    assert shim["tokenize_calls"] == len(map_ids) == sum(m["tokenize_calls"] for m in shim["by_map"].values())


def test_number_of_servers_is_bounded() -> None:
    metrics = Metrics()
    for number in range(256 + 10):
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
    assert "process_resident_memory_bytes" in families
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


@each_of("name", FIXED)
def test_series_of_fixed_words_are_on_the_page_from_the_start(name: str) -> None:
    labels = [tuple(zip(FIXED[name], words, strict=True)) for words in product(*FIXED[name].values())]
    page = Metrics().render().decode()
    shown = {
        tuple(sample.labels.items()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == f"{name}_total"
    }

    assert shown == dict.fromkeys(labels, 0)


def shown(metrics: Metrics) -> dict[str, float]:
    """What the page says, without buckets and without what the process uses."""
    return {
        " ".join((sample.name.removeprefix("codec_"), *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if sample.name.startswith("codec_") and not sample.name.endswith("_bucket")
    }


@pytest.mark.parametrize(
    ("report", "changed"),
    [
        (lambda it: it.list_changed("a", "tools"), {"list_changes_total tools a": 1}),
        (lambda it: it.pin_broken("a"), {"pin_breaks_total a": 1}),
        (lambda it: it.notification_dropped("nobody"), {"notifications_dropped_total nobody": 1}),
        (
            lambda it: it.request_answered(prompt=9, cached=4),
            {"prompt_tokens_total": 9, "prompt_cached_tokens_total": 4},
        ),
        (lambda it: it.ids_spliced("scaffold", 3), {"spliced_ids_total scaffold": 3}),
        (lambda it: it.result_kept(), {"results_kept_total": 1}),
        (lambda it: it.follow_kept_results(lambda: 7), {"kept_result_bytes": 7}),
        (lambda it: it.ids_prefilled(5), {"prefilled_ids_total": 5}),
        (lambda it: it.ids_padded(6), {"padded_ids_total": 6}),
        (lambda it: it.guess_judged(right=True), {"guessed_turns_total right": 1}),
        (lambda it: it.guess_judged(right=False), {"guessed_turns_total wrong": 1}),
        (lambda it: it.prompt_ids_lost("slot_taken", 8), {"prompt_ids_lost_total slot_taken": 8}),
        (lambda it: it.grammar_refused(), {"refused_grammars_total": 1}),
        (lambda it: it.loop_held(), {"loop_held_total": 1}),
        (lambda it: it.access.auth_failed("scope"), {"auth_failures_total scope": 1}),
        (lambda it: it.access.limited("tries"), {"requests_limited_total tries": 1}),
        (lambda it: it.access.bound_refused("session", "share"), {"bound_refusals_total session share": 1}),
        (lambda it: it.access.audit_dropped(3), {"audit_lines_dropped_total": 3}),
        (lambda it: it.access.trajectories_dropped(2), {"trajectory_lines_dropped_total": 2}),
        (lambda it: it.connections.follow(lambda: 4), {"connections": 4}),
        (lambda it: it.connections.ended("idle"), {"connections_ended_total idle": 1}),
        (
            lambda it: it.wire.stream("msgpack", "zstd", "fits", sent=1, plain=2, ids=3, as_json=4),
            {
                "wire_streams_total zstd msgpack other": 1,
                "wire_sent_bytes_total zstd msgpack": 1,
                "wire_plain_bytes_total zstd msgpack": 2,
                "wire_ids_total zstd msgpack": 3,
                "wire_json_bytes_total zstd msgpack": 4,
            },
        ),
        (lambda it: it.shared.up(False), {"shared_up": 0}),
        (lambda it: it.shared.asked("memory", "late"), {"shared_operations_total memory late": 1}),
        (
            lambda it: it.slot_files.moved("restore", 100, ids=9),
            {
                "slot_file_moves_total restore": 1,
                "slot_file_moved_bytes_total restore": 100,
                "slot_file_restored_ids_total": 9,
            },
        ),
        (
            lambda it: it.slot_files.moved("save", 100),
            {"slot_file_moves_total save": 1, "slot_file_moved_bytes_total save": 100},
        ),
        (lambda it: it.slot_files.refused("digest"), {"slot_files_refused_total digest": 1}),
        (lambda it: it.slot_files.held(55), {"slot_file_bytes": 55}),
        (lambda it: it.engines.engine_up("e", True), {"pool_engine_up e": 1}),
        (lambda it: it.engines.engine_running("e", 3), {"pool_engine_answers e": 3}),
        (lambda it: it.engines.answer_moved("e", begun=True), {"pool_answers_moved_total middle e": 1}),
        (lambda it: it.engines.answer_moved("e", begun=False), {"pool_answers_moved_total start e": 1}),
        (lambda it: it.servers.bolt_on_called("raw"), {"bolt_on_calls_total raw": 1}),
        (lambda it: it.servers.bolt_on_called("?"), {"bolt_on_calls_total other": 1}),
    ],
)
def test_report_changes_its_series_and_no_other(report: Callable[[Metrics], object], changed: dict[str, float]) -> None:
    metrics = Metrics()
    before = shown(metrics)
    report(metrics)

    assert before["shared_up"] == 1
    assert dict(shown(metrics).items() - before.items()) == changed


def test_prompt_tokens_of_all_requests_are_added_up() -> None:
    metrics = Metrics()
    metrics.request_answered(prompt=9, cached=4)
    metrics.request_answered(prompt=1, cached=1)

    assert metrics.get_prompt_tokens() == {"prompt_tokens": 10, "cached_tokens": 5}


def test_times_of_calls_are_those_of_the_servers_asked_for() -> None:
    metrics = Metrics()
    for server, seconds in (("a", 0.02), ("a", 0.02), ("a", 0.2), ("b", 0.2), ("c", 20.0)):
        metrics.tool_called(server, "ok", seconds)

    def times(*servers: str) -> dict[float, int]:
        return {bound: count for bound, count in metrics.call_times(*servers) if count}

    assert times("a") == {0.025: 2, 0.25: 1}
    assert times("a", "b") == {0.025: 2, 0.25: 2}
    assert len(metrics.call_times("c")) == 15
    assert metrics.call_times() == []


@each_of(
    ("code", "kind"),
    [
        (-32700, "parse"),
        (-32600, "invalid_request"),
        (-32601, "method_not_found"),
        (-32602, "invalid_params"),
        (-32603, "internal"),
        (-32000, "server"),
        (-32001, "timeout"),
        (-32002, "not_found"),
        (-32020, "header_mismatch"),
        (-32021, "capability"),
        (-32022, "version"),
        (-32042, "elicitation"),
        (-32800, "cancelled"),
    ],
)
def test_code_of_json_rpc_and_mcp_has_its_word(code: int, kind: str) -> None:
    metrics = Metrics()
    metrics.servers.answered(code)

    assert read(metrics, "codec_mcp_errors_total", kind=kind) == 1


def test_parent_of_workers_shows_its_own_and_no_time_of_creation() -> None:
    metrics = WorkerMetrics()
    metrics.restarts.inc()
    metrics.running.set(2)
    metrics.connections.ended("idle")
    page = metrics.render()

    assert [each.name for each in metrics.own] == ["codec_workers", "codec_worker_restarts_total"]
    assert "codec_workers 2.0" in page
    assert "codec_worker_restarts_total 1.0" in page
    assert 'codec_connections_ended_total{reason="idle"} 1.0' in page
    assert 'codec_connections_ended_total{reason="total"} 0.0' in page
    assert "process_resident_memory_bytes" in page
    assert "_created" not in page


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
