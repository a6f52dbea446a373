"""The metrics about the state of servers: read when asked for, bounded whatever servers say."""

from dataclasses import dataclass
from typing import Literal

import pytest

from gateway.observe.exposition import ERROR_KINDS, OTHER, SERVERS_BOUND
from gateway.observe.metrics import Metrics


@dataclass
class Standing:
    name: str
    in_flight: int = 0
    queued: int = 0
    sessions: int = 0
    breaker: Literal["closed", "open", "half_open"] = "closed"


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_standing_of_a_server_is_what_it_is_at_the_time_of_the_page() -> None:
    metrics = Metrics()
    time = Standing("time", in_flight=3, queued=2, sessions=4)
    metrics.servers.follow(lambda: [time])

    shown = [read(metrics, f"codec_upstream_{n}", server="time") for n in ("in_flight", "queued", "sessions")]
    time.in_flight = 0

    assert shown == [3, 2, 4]
    assert read(metrics, "codec_upstream_in_flight", server="time") == 0


@pytest.mark.parametrize(("state", "value"), [("closed", 0), ("half_open", 1), ("open", 2)])
def test_breaker_is_a_number_that_grows_with_what_it_refuses(
    state: Literal["closed", "open", "half_open"], value: int
) -> None:
    metrics = Metrics()
    metrics.servers.follow(lambda: [Standing("time", breaker=state)])

    assert read(metrics, "codec_upstream_breaker", server="time") == value


def test_server_that_is_configured_no_more_has_no_standing() -> None:
    metrics = Metrics()
    servers = [Standing("time"), Standing("notes")]
    metrics.servers.follow(lambda: servers)
    assert read(metrics, "codec_upstream_sessions", server="notes") == 0

    servers.pop()

    assert read(metrics, "codec_upstream_sessions", server="notes") is None
    assert read(metrics, "codec_upstream_sessions", server="time") == 0


def test_servers_beyond_the_bound_are_summed_and_the_page_stays_valid() -> None:
    metrics = Metrics()
    metrics.servers.follow(lambda: [Standing(f"s{n}", in_flight=2) for n in range(SERVERS_BOUND + 5)])

    assert read(metrics, "codec_upstream_in_flight", server=OTHER) == 10
    assert metrics.render().count(b"codec_upstream_in_flight{") == SERVERS_BOUND + 1


def test_wait_in_the_queue_is_measured_by_server() -> None:
    metrics = Metrics()
    metrics.servers.queued("time", 0.25)
    metrics.servers.queued("time", 0.5)

    assert read(metrics, "codec_upstream_queue_seconds_count", server="time") == 2
    assert read(metrics, "codec_upstream_queue_seconds_sum", server="time") == 0.75


def test_errors_are_counted_by_the_word_for_their_code() -> None:
    metrics = Metrics()
    for code in (-32602, -32602, -32601):
        metrics.servers.refused("time", code)
    metrics.servers.answered(-32603)

    assert read(metrics, "codec_upstream_errors_total", server="time", kind="invalid_params") == 2
    assert read(metrics, "codec_upstream_errors_total", server="time", kind="method_not_found") == 1
    assert read(metrics, "codec_mcp_errors_total", kind="internal") == 1


@pytest.mark.parametrize("code", [1, -32999, 10**40, "x\n", None, 1.5, [1]])
def test_strange_code_of_a_server_is_another_error_and_no_label(code: object) -> None:
    metrics = Metrics()
    metrics.servers.refused("time", code)

    assert read(metrics, "codec_upstream_errors_total", server="time", kind=OTHER) == 1


def test_every_kind_of_error_has_a_zero_from_the_start() -> None:
    metrics = Metrics()

    assert {read(metrics, "codec_mcp_errors_total", kind=kind) for kind in (*ERROR_KINDS.values(), OTHER)} == {0}


def test_cost_of_definitions_is_that_of_the_servers_there_are_now() -> None:
    metrics = Metrics()
    metrics.servers.defined({"time": 120, "notes": 80})
    metrics.servers.defined({"time": 60})

    assert read(metrics, "codec_tool_definition_tokens", server="time") == 60
    assert read(metrics, "codec_tool_definition_tokens", server="notes") is None
