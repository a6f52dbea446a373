"""The line of a call in the audit log: its fields, whatever the model wrote and whoever made the ids of its result."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.agent.calls.call_audit import Ledger
from gateway.agent.calls.request_tools import ToolOffers
from gateway.agent.events import ToolFinished
from gateway.observe.audit import AuditLine
from gateway.proxy.caller import Principal
from gateway.proxy.costs import DefinitionCosts
from gateway.proxy.naming import ToolEntry
from gateway.toolcalls.stream.output_events import CallClosed

ADA = Principal("ada")
TOOLS = [ToolEntry("down__say", "down", "say", {}), ToolEntry("say_1234", "up", "say", {}, alias_of="up.say")]


class Lines(list[AuditLine]):
    """An audit log in memory."""

    def record(self, line: AuditLine) -> None:
        self.append(line)


def ledger(lines: Lines) -> Ledger:
    proxy: Any = SimpleNamespace(model_tools=lambda: TOOLS)
    audit: Any = lines
    return Ledger(ToolOffers(proxy, DefinitionCosts(lambda: None)), audit)


def finished(name: str = "down__say", arguments: str = '{"a": 1}', leaf: int = 0, shim: int = 0) -> ToolFinished:
    return ToolFinished("call_1", name, arguments, "é\ud800", "shim", leaf, shim, False, 0.25)


@pytest.mark.parametrize(("leaf", "shim", "source"), [(0, 0, "none"), (2, 0, "leaf"), (0, 3, "shim"), (2, 3, "mixed")])
def test_line_of_a_result_says_who_made_its_ids(leaf: int, shim: int, source: Any) -> None:
    lines = Lines()
    ledger(lines).told(ADA, finished(leaf=leaf, shim=shim), "a/map", "ok")

    assert lines == [
        AuditLine(
            principal="ada",
            endpoint="v1",
            method="tools/call",
            outcome="ok",
            server="down",
            tool="down__say",
            map="a/map",
            source=source,
            bytes_in=8,
            # Half of a surrogate pair counts as the mark that stands for it.
            bytes_out=3,
            ids=leaf + shim,
            duration_ms=250.0,
            request_id="call_1",
            arguments={"a": 1},
        )
    ]


@pytest.mark.parametrize(("seconds", "duration"), [(None, 0.0), (0.25, 250.0)])
def test_line_of_a_call_that_nobody_waits_for_says_that_it_was_cancelled(
    seconds: float | None, duration: float
) -> None:
    lines = Lines()
    ledger(lines).lost(ADA, CallClosed(0, "call_1", "say_1234", '{"a": "é"}', ()), seconds)

    assert lines == [
        AuditLine(
            principal="ada",
            endpoint="v1",
            method="tools/call",
            outcome="cancelled",
            server="up",
            tool="up.say",
            bytes_in=11,
            duration_ms=duration,
            request_id="call_1",
            arguments={"a": "é"},
        )
    ]


@pytest.mark.parametrize(
    ("name", "server", "tool"),
    [("say_1234", "up", "up.say"), ("down__say", "down", "down__say"), ("nope", None, "nope")],
)
def test_tool_stands_under_its_public_name(name: str, server: str | None, tool: str) -> None:
    lines = Lines()
    ledger(lines).told(ADA, finished(name), "", "refused")

    assert (lines[0].server, lines[0].tool, lines[0].outcome) == (server, tool, "refused")


@pytest.mark.parametrize("arguments", ["[1]", '"a"', "{", "[" * 100_000])
def test_arguments_that_are_no_object_are_kept_as_their_text(arguments: str) -> None:
    lines = Lines()
    ledger(lines).told(ADA, finished(arguments=arguments), "", "refused")
    ledger(lines).lost(ADA, CallClosed(0, "call_1", "nope", arguments, ()), None)

    assert [line.arguments for line in lines] == [{"text": arguments}] * 2
