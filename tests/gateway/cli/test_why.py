"""What `codec-gateway why` prints: figures and reasons, on terminals of several widths, and never a word of anybody."""

from typing import Any

import pytest
from rich.console import Console

from gateway.cli.why import print_losses
from gateway.observe.labels import LossReason


def lost(reason: str | None, **more: Any) -> dict[str, Any]:
    shown = {"when": "2026-11-23T02:00:00+00:00", "caller": "laptop", "conversation": 1, "held": 500, "reused": 60}
    return {**shown, "lost": 440 if reason else 0, "reason": reason, "message": 0, "at": 41, **more}


def page_of(prompts: list[dict[str, Any]], width: int = 120) -> str:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        print_losses(console, prompts)
    return capture.get()


def test_each_request_is_a_line_and_each_reason_has_one_line_of_advice() -> None:
    page = page_of([lost("client_changed"), lost("client_changed"), lost("slot_taken"), lost(None)])

    assert page.count("02:00:00") == 4
    assert page.count("message 0 changes at character 41") == 1
    assert "engine.volatile" in page
    assert page.count("raise engine.slots") == 1


@pytest.mark.parametrize("reason", LossReason.__args__)
def test_every_reason_has_its_advice(reason: str) -> None:
    assert f"{reason}: " in page_of([lost(reason)])


def test_narrow_terminal_keeps_what_was_lost_and_why() -> None:
    head = page_of([lost("slot_taken")], 30).splitlines()[0]
    assert head.split() == ["when", "lost", "reason"]


def test_before_anybody_came_back_that_is_said() -> None:
    assert "no request has continued a conversation" in page_of([])


def test_name_of_a_caller_is_no_markup() -> None:
    assert "\x1b" not in page_of([lost("slot_taken", caller="x\x1b[31m[red]")])
