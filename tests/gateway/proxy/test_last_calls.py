"""The last calls, as figures: enough to look at, and never more."""

from datetime import UTC, datetime

from gateway.proxy.results import KEPT, LastCalls


def test_calls_of_a_server_and_of_a_tool_are_the_latest_first():
    calls = LastCalls()
    before = datetime.now(UTC)
    for tool, ended in (("a", "ok"), ("b", "timeout"), ("a", "tool_error")):
        calls.note("up", tool, "laptop", ended, 0.5)
    calls.note("other", "a", "anonymous", "ok", 0.1)

    found = calls.of("up")

    assert [(each.tool, each.ended, each.principal, each.seconds) for each in found] == [
        ("a", "tool_error", "laptop", 0.5),
        ("b", "timeout", "laptop", 0.5),
        ("a", "ok", "laptop", 0.5),
    ]
    assert [each.ended for each in calls.of("up", "a")] == ["tool_error", "ok"]
    assert all(before <= each.ended_at <= datetime.now(UTC) for each in found)
    assert found[0].ended_at >= found[-1].ended_at


def test_a_call_reads_the_same_each_time():
    calls = LastCalls()
    calls.note("up", "a", "laptop", "ok", 0.5)

    assert len({calls.of("up")[0] for _ in range(1000)}) == 1


def test_the_oldest_go():
    calls = LastCalls()
    for number in range(KEPT + 5):
        calls.note("up", str(number), "", "ok", 0.0)

    assert [calls.of("up")[0].tool, calls.of("up")[-1].tool] == [str(KEPT + 4), "5"]
