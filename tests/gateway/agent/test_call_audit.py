"""On whose behalf the agent calls tools, and what is written down of it."""

import json
from pathlib import Path

import pytest

from gateway.config import LimitsConfig
from gateway.observe.audit import Audit
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
OFFERED = (ToolSpec("up__say", "", {}),)
ADA = Principal("ada", frozenset({"up"}))
EVE = Principal("eve", frozenset({"elsewhere"}))


def call(arguments: str = '{"a": 1}', index: int = 0) -> CallClosed:
    return CallClosed(index, f"call_{index}", "up__say", arguments, ())


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def break_off(runner):
    async with runner.running(OFFERED, ADA) as running:
        running.start(call())
        raise OSError("the engine broke")


async def test_tools_that_somebody_may_not_call_are_not_offered_to_their_model(open_runner):
    async with open_runner(LimitsConfig(), "x") as (runner, _):
        assert [spec.name for spec in runner.offers.specs(ADA)] == ["up__say"]
        assert runner.offers.specs(EVE) == ()
        assert runner.offers.specs(Principal("bob", None, ("other*",))) == ()


async def test_call_on_behalf_of_somebody_who_may_not_reaches_no_server(open_runner, tmp_path):
    with Audit(tmp_path / "audit", Metrics().access) as audit:
        async with open_runner(LimitsConfig(), "the secret", audit=audit) as (runner, _):
            async with runner.running(OFFERED, EVE) as running:
                running.start(call())
            (outcome,) = await running.finished(TINY, 1000)

    assert "the secret" not in outcome.finished.text
    (line,) = read(tmp_path / "audit")
    assert (line["principal"], line["outcome"]) == ("eve", "refused")


async def test_call_is_one_line_of_the_audit_log(open_runner, tmp_path):
    with Audit(tmp_path / "audit", Metrics().access, arguments=True) as audit:
        async with open_runner(LimitsConfig(), "hello world", audit=audit) as (runner, _):
            async with runner.running(OFFERED, ADA) as running:
                running.start(call())
            (outcome,) = await running.finished(TINY, 1000)

    (line,) = read(tmp_path / "audit")
    assert line.pop("duration_ms") > 0
    assert line.pop("time")
    assert line == {
        "principal": "ada",
        "face": "v1",
        "method": "tools/call",
        "server": "up",
        "tool": "up__say",
        "map": TINY.map_id,
        "source": "shim",
        "bytes_in": 8,
        "bytes_out": 11,
        "ids": len(outcome.ids),
        "outcome": "ok",
        "request_id": "call_0",
        "arguments": {"a": 1},
    }


# No server answers so soon.
@pytest.mark.parametrize(("everybodys", "its_own"), [(1e-6, None), (3600.0, 1e-6)])
async def test_call_that_ran_out_of_time_is_written_down_as_that(open_runner, tmp_path, everybodys, its_own):
    with Audit(tmp_path / "audit", Metrics().access) as audit:
        limits = LimitsConfig(tool_timeout=everybodys)
        async with open_runner(limits, "late", audit=audit, timeout=its_own) as (runner, _):
            async with runner.running(OFFERED, ADA) as running:
                running.start(call())
            await running.finished(TINY, 1000)

    (line,) = read(tmp_path / "audit")
    assert (line["tool"], line["outcome"]) == ("up__say", "timeout")


async def test_call_whose_result_goes_nowhere_has_a_line_too(open_runner, tmp_path):
    with Audit(tmp_path / "audit", Metrics().access) as audit:
        async with open_runner(LimitsConfig(), "hello", audit=audit) as (runner, _):
            with pytest.raises(OSError, match="the engine broke"):
                await break_off(runner)

    (line,) = read(tmp_path / "audit")
    assert (line["principal"], line["tool"], line["outcome"]) == ("ada", "up__say", "cancelled")


async def test_call_that_ended_before_its_generation_failed_is_written_down_with_its_time(open_runner, tmp_path):
    async def fail_behind_the_call(runner):
        async with runner.running(OFFERED, ADA) as running:
            running.start(call())
            await running.closing().wait()
            raise OSError("the engine broke")

    with Audit(tmp_path / "audit", Metrics().access) as audit:
        async with open_runner(LimitsConfig(), "hello", audit=audit) as (runner, _):
            with pytest.raises(OSError, match="the engine broke"):
                await fail_behind_the_call(runner)

    (line,) = read(tmp_path / "audit")
    assert (line["tool"], line["outcome"]) == ("up__say", "cancelled")
    assert line["duration_ms"] > 0
