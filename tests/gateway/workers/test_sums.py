"""Pages of metrics of several workers as one."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gateway.observe.client_metrics import WorkerMetrics
from gateway.observe.metrics import Metrics
from gateway.workers.worker_pages import LEAST, MOST, Sums, read_page
from tests.cases import each_of

ADDED = {
    "codec_connections",
    "codec_kept_result_bytes",
    "codec_pool_engine_answers",
    "codec_slot_file_bytes",
    "codec_tasks",
    "codec_upstream_in_flight",
    "codec_upstream_queued",
    "codec_upstream_sessions",
}


def page(calls: int, *, running: int = 0, up: int = 1) -> str:
    return (
        "# HELP codec_calls_total Calls.\n# TYPE codec_calls_total counter\n"
        f'codec_calls_total{{server="a"}} {calls}\n'
        f"# HELP running Now.\n# TYPE running gauge\nrunning {running}\n"
        f"# HELP codec_engine_up Up.\n# TYPE codec_engine_up gauge\ncodec_engine_up {up}\n"
        "# HELP seconds Time.\n# TYPE seconds histogram\n"
        f'seconds_bucket{{le="1.0"}} {calls}\nseconds_bucket{{le="+Inf"}} {calls}\nseconds_count {calls}\n'
        f"seconds_sum {calls}.5\n"
    )


def shown(sums: Sums, heard: list[int], own: str = "") -> dict[str, float]:
    text = sums.render(heard, own).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name + "".join(sample.labels.values()): sample.value for sample in samples}


def test_series_of_the_same_name_and_labels_are_added_up() -> None:
    sums = Sums()
    sums.update(0, read_page(page(3, running=1)))
    sums.update(1, read_page(page(4, running=2, up=0)))

    found = shown(sums, [0, 1], '# HELP running Now.\n# TYPE running gauge\nrunning{kind="x"} 7\n')

    assert found == {
        "codec_calls_totala": 7,
        "running": 3,
        "runningx": 7,
        "codec_engine_up": 0,
        "seconds_bucket1.0": 7,
        "seconds_bucket+Inf": 7,
        "seconds_count": 7,
        "seconds_sum": 8,
    }


def test_counter_does_not_fall_when_a_worker_is_silent_or_ends_and_its_gauges_are_gone() -> None:
    sums = Sums()
    sums.update(0, read_page(page(3, running=1)))
    sums.update(1, read_page(page(4, running=2)))
    silent = shown(sums, [0])
    sums.ended(1)
    ended = shown(sums, [0])
    sums.update(1, read_page(page(1, running=5)))
    again = shown(sums, [0, 1])
    sums.ended(1)
    sums.ended(1)

    assert [(each["codec_calls_totala"], each["running"]) for each in (silent, ended, again)] == [
        (7, 1),
        (7, 1),
        (8, 6),
    ]
    assert shown(sums, [0])["seconds_sum"] == 3.5 + 4.5 + 1.5


def test_page_of_one_worker_comes_out_as_it_went_in() -> None:
    metrics = Metrics()
    metrics.tool_called("a", "ok", 0.2)
    before = metrics.render().decode()
    sums = Sums()
    sums.update(0, read_page(before))

    assert shown(sums, [0]) == {
        sample.name + "".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(before)
        for sample in family.samples
    }


def test_of_every_gauge_it_is_decided_what_several_of_it_come_to() -> None:
    gauges = {each.name for each in Metrics().described if each.kind == "gauge"}

    assert {name for name in LEAST | MOST | ADDED if name.startswith("codec_")} == gauges
    assert not (LEAST | MOST) & ADDED


@each_of("name", sorted(LEAST | MOST))
def test_reference_says_which_are_not_added_up(name: str) -> None:
    words = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text().partition("## Several workers")[2]

    assert f"`{name}`" in words.partition("| metric |")[0]


def test_parent_has_series_that_no_worker_has() -> None:
    own = {each.name for each in WorkerMetrics().own}

    assert own == {"codec_workers", "codec_worker_restarts_total"}
    assert not own & {each.name for each in Metrics().described}
