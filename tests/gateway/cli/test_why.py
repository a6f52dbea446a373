"""What `codec-gateway why` prints: figures and reasons, on terminals of several widths, and never a word of anybody."""

from typing import Any

from rich.console import Console

from gateway.cli.why import print_losses
from gateway.observe.prompt_losses import WORDS, LossReason
from tests.cases import each_of


def lost(reason: str | None, **more: Any) -> dict[str, Any]:
    shown = {"when": "2026-11-23T02:00:00+00:00", "caller": "laptop", "conversation": 1, "prompt_tokens": 520}
    return {
        **shown,
        "cached_tokens": 60,
        "lost": 440 if reason else 0,
        "reason": reason,
        "message": 0,
        "at": 41,
        **more,
    }


def page_of(prompts: list[dict[str, Any]], width: int = 120) -> str:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        print_losses(console, prompts)
    return capture.get()


def test_each_request_is_a_line_and_each_reason_has_one_line_of_advice() -> None:
    page = page_of([lost("client_changed"), lost("client_changed"), lost("slot_taken"), lost(None)], 400)

    assert page.count("02:00:00") == 4
    assert page.count("message 0 changes at character 41") == 1
    assert "engine.volatile" in page
    assert page.count("raise engine.slots") == 1


@each_of("reason", LossReason.__args__)
def test_every_reason_is_explained(reason: str) -> None:
    assert f"{reason}: {WORDS[reason]}; " in page_of([lost(reason)], 400)


def test_columns_are_prompt_tokens_cached_and_recomputed() -> None:
    lines = page_of([lost("slot_taken"), lost(None)]).splitlines()

    assert lines[0].split() == ["when", "caller", "prompt", "tokens", "cached", "recomputed", "reason"]
    assert [line.split()[-4:] for line in lines[1:3]] == [["520", "60", "440", "slot_taken"], ["520", "60", "0", "-"]]


def test_narrow_terminal_keeps_what_was_lost_and_why() -> None:
    head = page_of([lost("slot_taken")], 34).splitlines()[0]
    assert head.split() == ["when", "recomputed", "reason"]


def test_before_anybody_came_back_that_is_said() -> None:
    assert "no request has continued a conversation" in page_of([])


def test_name_of_a_caller_is_no_markup() -> None:
    assert "\x1b" not in page_of([lost("slot_taken", caller="x\x1b[31m[red]")])
