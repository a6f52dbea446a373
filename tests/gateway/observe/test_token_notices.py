"""The two lines that say, once, whether a tool speaks ids."""

import pytest
import structlog

from gateway.observe.logs import REMEMBERED, TokenNotices

MAP = "sha256:0123456789abcdef" + "0" * 48


class Recorder:
    """A structlog logger whose last processor keeps the line."""

    def __init__(self) -> None:
        self.entries: list[dict[str, object]] = []
        capture = structlog.testing.LogCapture()
        self.entries = capture.entries  # type: ignore[assignment]
        wrapper = structlog.make_filtering_bound_logger(0)
        self.log = structlog.wrap_logger(
            None, processors=[structlog.stdlib.add_log_level, capture], wrapper_class=wrapper
        )


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_leaf_line_says_that_the_tool_sends_token_ids(recorder: Recorder) -> None:
    TokenNotices(recorder.log).leaf("time__now", MAP)

    (entry,) = recorder.entries
    assert entry["event"] == "the results of this tool come with token ids; the gateway checks and uses them"
    assert entry["log_level"] == "info"
    assert entry["tool"] == "time__now"


def test_shim_line_is_no_warning_and_names_the_tool(recorder: Recorder) -> None:
    TokenNotices(recorder.log).shim("time__now", MAP)

    (entry,) = recorder.entries
    assert entry["event"] == (
        "the gateway tokenizes the results of this tool; a server with codec-leaf sends their token ids"
    )
    assert (entry["log_level"], entry["tool"], entry["map"]) == ("info", "time__now", "0123456789ab")


def test_rejected_line_gives_the_reason(recorder: Recorder) -> None:
    TokenNotices(recorder.log).rejected("time__now", MAP, "special", "id 2 is <|im_end|>")

    (entry,) = recorder.entries
    assert (entry["log_level"], entry["reason"], entry["detail"]) == ("warning", "special", "id 2 is <|im_end|>")


def test_each_thing_is_said_once_for_a_tool_and_a_map(recorder: Recorder) -> None:
    notices = TokenNotices(recorder.log)
    for _ in range(3):
        for tool in ("a", "b"):
            for map_id in (MAP, "sha256:" + "f" * 64):
                notices.leaf(tool, map_id)
                notices.shim(tool, map_id)
                notices.rejected(tool, map_id, "malformed", "")

    assert len(recorder.entries) == 2 * 2 * 3


def test_memory_is_bounded_and_what_comes_after_is_silent(recorder: Recorder) -> None:
    notices = TokenNotices(recorder.log)
    for number in range(REMEMBERED + 50):
        notices.shim(f"tool-{number}", MAP)

    assert len(recorder.entries) == REMEMBERED
    notices.leaf("late", MAP)
    assert len(recorder.entries) == REMEMBERED


def test_endless_tool_names_are_remembered_by_their_beginning(recorder: Recorder) -> None:
    notices = TokenNotices(recorder.log)
    notices.shim("t" * 100_000, MAP)
    notices.shim("t" * 100_001, MAP)

    assert len(recorder.entries) == 1


def test_blocks_are_counted_by_how_they_got_their_ids(recorder: Recorder) -> None:
    notices = TokenNotices(recorder.log)
    for _ in range(3):
        notices.leaf("a", MAP)
    notices.shim("a", MAP)
    notices.rejected("b" * 200, MAP, "range", "")

    assert len(recorder.entries) == 3
    assert dict(notices.counts("a")) == {"leaf": 3, "shim": 1}
    assert dict(notices.counts("b" * 200)) == {"rejected": 1}
    assert dict(notices.counts("c")) == {}


def test_way_of_the_last_block_is_known_however_often_it_changes(recorder: Recorder) -> None:
    notices = TokenNotices(recorder.log)
    assert notices.last("a") is None
    for tell in (notices.leaf, notices.shim, notices.leaf):
        tell("a", MAP)

    assert notices.last("a") == "leaf"


def test_same_tool_is_said_again_for_another_map(recorder: Recorder) -> None:
    notices = TokenNotices(recorder.log)
    notices.leaf("a", MAP)
    notices.leaf("a", "sha256:" + "f" * 64)

    assert [entry["map"] for entry in recorder.entries] == ["0123456789ab", "f" * 12]


def test_known_tools_are_followed_beyond_the_bound_and_new_ones_are_not(recorder: Recorder) -> None:
    notices = TokenNotices(recorder.log)
    for number in range(REMEMBERED):
        notices.shim(f"tool-{number}", MAP)
    notices.leaf("tool-0", MAP)
    notices.leaf("late", MAP)

    assert (notices.last("tool-0"), notices.last("late")) == ("leaf", None)
    assert dict(notices.counts("tool-0")) == {"shim": 1, "leaf": 1}
    assert dict(notices.counts("late")) == {}
