"""The file of trajectories, in real files: it is written as the audit log is."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import ConfigError
from gateway.observe.line_log import WEIGHT_BOUND
from gateway.observe.metrics import Metrics
from gateway.observe.trajectories import Sampled, Span, TrajectoryAnswer, TrajectoryLog
from leaf_sdk.trajectories import read_trajectories

SPANS = (Span("template", 1), Span("shim", 1, "paint \x1b[31m s3cret", "up\n"), Span("model", 2))


def answer(name: str, **changed: Any) -> TrajectoryAnswer:
    sampled = (Sampled(2, 2, 9, guessed=False, logprobs=(-0.1234567, None, float("-inf"))),)
    fields = {"before": None, "principal": "a", "map_id": "sha256:m", "model": "m", "ended": "stop", "kept": 0}
    return TrajectoryAnswer(name, **{**fields, "ids": (1, 2, 3, 4), "spans": SPANS, "sampled": sampled, **changed})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def dropped(metrics: Metrics) -> float:
    name = "codec_trajectory_lines_dropped_total "
    (line,) = [x for x in metrics.render().decode().splitlines() if x.startswith(name)]
    return float(line.split()[1])


def test_line_says_all_in_printable_ascii_and_its_file_is_the_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with TrajectoryLog(path, Metrics().access, secrets={"s3cret"}, model_digest=lambda: "sha256:d") as file:
        file.record(answer("one", principal="ä\u202e"))
    (line,) = lines(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().rstrip("\n").isprintable()
    assert (line["id"], line["before"], line["principal"], line["ids"]) == ("one", None, "ä\u202e", [1, 2, 3, 4])
    assert (line["map"], line["model"], line["model_digest"]) == ("sha256:m", "m", "sha256:d")
    assert line["spans"][1] == {"source": "shim", "ids": 1, "tool": "paint \x1b[31m ****", "server": "up\n"}
    assert line["sampled"][0]["logprobs"] == [-0.123457, None, None]


def test_file_that_is_moved_away_is_followed_by_a_new_one_and_both_are_read_together(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with TrajectoryLog(path, Metrics().access) as file:
        file.record(answer("one"))
        while not path.read_bytes():
            pass
        path.rename(tmp_path / "old")
        file.record(answer("two", before="one", kept=4, ids=(5, 6), spans=(Span("model", 2),), sampled=(_late(),)))
    both = (tmp_path / "old").read_text() + path.read_text()

    (sample,) = read_trajectories(both.splitlines()).samples()
    assert sample.ids == [1, 2, 3, 4, 5, 6]


def _late() -> Sampled:
    return Sampled(4, 2, None, guessed=False)


def test_disk_that_is_full_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    with TrajectoryLog(Path("/dev/full"), metrics.access) as file:
        for n in range(3):
            file.record(answer(str(n)))

    assert dropped(metrics) == 3
    assert [r.msg["event"] for r in caplog.records].count("the trajectory file can't be written") == 1


def test_path_that_can_not_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trajectories\.path: .* can't be written"):
        TrajectoryLog(tmp_path / "none" / "lines", Metrics().access).__enter__()


def test_answers_that_wait_are_bounded_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.observe.line_log.BATCH_SECONDS", 60)
    metrics, path = Metrics(), tmp_path / "lines"
    large = answer("large", ids=range(WEIGHT_BOUND // 8))
    with TrajectoryLog(path, metrics.access) as file:
        file.record(large)
        file.record(answer("small"))

    assert dropped(metrics) == 1
    assert {"dropped": 1, "reason": "answers came in faster than they could be written"}.items() <= lines(path)[
        0
    ].items()
    assert read_trajectories(path.read_text().splitlines()).lost == 1


def test_model_whose_file_is_gone_has_no_digest(tmp_path: Path) -> None:
    def gone() -> str:
        raise FileNotFoundError

    with TrajectoryLog(tmp_path / "lines", Metrics().access, model_digest=gone) as file:
        file.record(answer("one"))

    assert lines(tmp_path / "lines")[0]["model_digest"] is None


def test_log_probabilities_that_wait_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.observe.line_log.BATCH_SECONDS", 60)
    metrics = Metrics()
    half = Sampled(0, 1, None, guessed=False, logprobs=[0.0] * (WEIGHT_BOUND // 64))
    with TrajectoryLog(tmp_path / "lines", metrics.access) as file:
        file.record(answer("one", ids=(), spans=(), sampled=(half,)))
        file.record(answer("two", ids=(1,), spans=(), sampled=(half,)))
        file.record(answer("three", ids=range(WEIGHT_BOUND // 16), spans=()))

    assert dropped(metrics) == 2


def test_span_of_a_part_has_the_same_source() -> None:
    whole = Span("leaf", 5, "t", "s")

    assert whole.of(2) == Span("leaf", 2, "t", "s")
    assert whole.of(5) is whole
    assert [
        whole.is_like(each)
        for each in (
            Span("leaf", 1, "t", "s"),
            Span("shim", 5, "t", "s"),
            Span("leaf", 5, "u", "s"),
            Span("leaf", 5, "t"),
        )
    ] == [True, False, False, False]


def test_log_probabilities_are_asked_for_where_they_are_wanted_only(tmp_path: Path) -> None:
    assert not TrajectoryLog(tmp_path / "lines", Metrics().access).logprobs
    assert TrajectoryLog(tmp_path / "lines", Metrics().access, logprobs=True).logprobs


def test_turn_without_log_probabilities_says_nothing_of_them(tmp_path: Path) -> None:
    with TrajectoryLog(tmp_path / "lines", Metrics().access) as file:
        file.record(answer("one", sampled=(_late(),)))

    assert lines(tmp_path / "lines")[0]["sampled"] == [{"start": 4, "ids": 2, "ended_by": None, "guessed": False}]
