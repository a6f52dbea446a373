"""The second act, for people (a bar chart) and for machines.

It shows what was measured and computes nothing but sums.
"""

from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from codec_demo.second_act import GATEWAY, PLAIN, Request, SecondAct

_WIDE: Final = 72
"""Columns that figures and bars need side by side; on a narrower terminal each bar has a line of its own."""
_BLOCKS: Final = ("█", "░")
_ASCII: Final = ("#", "-")
_FEW: Final = 50
"""Up to so many recomputed tokens are called a small gain."""
_SLOWER: Final = 100.0
"""Milliseconds by which a first token has to be later behind the gateway to be reported: less may be chance."""

_MEANING: Final = (
    "{again} recomputed: tokens that the server had had in its cache; {new} new tokens. Time: to the first token, as "
    "the server reports it. One program sent both servers the same requests, taking turns in which came first: 20 tool "
    "definitions, results of 340 to 750 tokens. Both run this model with the same threads; llama-server has its "
    "defaults (8,192 tokens, 4 slots, 8 GiB of prompt cache)."
)


def show_second_act(act: SecondAct, console: Console) -> None:
    """Print both conversations as bars; fits a terminal of any width."""
    marks = _BLOCKS if console.is_terminal and not console.is_dumb_terminal else _ASCII
    console.print()
    console.print(Text("An agent that runs its own tools: through the gateway, and with a plain llama-server", "bold"))
    if console.width >= _WIDE:
        head = f"{'request':<12}{'server':<8}{'tokens recomputed':>19}{'time':>9}"
        console.print(Text(head, style="dim"))
    most = max(request.processed for request in (*act.gateway, *act.plain))
    for through, plain in zip(act.gateway, act.plain, strict=True):
        for name, one, style in ((GATEWAY, through, "green"), (PLAIN, plain, "yellow")):
            console.print(Text("\n".join(_rows(name, one, console.width, most, marks)), style=style))
    console.print(Padding(Text(_MEANING.format(again=marks[0], new=marks[1]), style="dim"), (1, 0)))
    for sentence in sentences(act):
        console.print(Text(sentence, style="bold"))


def _rows(name: str, one: Request, width: int, most: int, marks: tuple[str, str]) -> Iterator[str]:
    whose = f"{one.number} {one.who}" if name == GATEWAY else ""
    figures = f"{name:<13}{one.recomputed:>5,} of {one.processed:>5,}{one.ms / 1000:>7.1f} s"
    if width >= _WIDE:
        yield f"{whose:<12}{figures}  {_bar(one, width - 50, most, marks)}".rstrip()
        return
    if whose:
        yield f"request {whose}"
    yield f"  {figures}"
    yield f"  {_bar(one, width - 2, most, marks)}"


def _bar(one: Request, width: int, most: int, marks: tuple[str, str]) -> str:
    """As long as what was processed: first what was recomputed, then what was new."""
    length = min(width, 40)
    whole = max(round(one.processed * length / most), 1)
    again = round(one.recomputed * length / most)
    return marks[0] * again + marks[1] * (whole - again)


def sentences(act: SecondAct) -> list[str]:
    """Say what the figures mean, where the gain is small too."""
    through, plain = (sum(each.recomputed for each in side) for side in (act.gateway, act.plain))
    pairs = list(zip(act.gateway, act.plain, strict=True))
    small = [str(b.number) for a, b in pairs if b.recomputed - a.recomputed <= _FEW]
    worst = max(act.plain, key=lambda each: each.recomputed)
    told = [f"Tokens recomputed in all: {through:,} behind the gateway, {plain:,} without it."]
    if worst.recomputed > _FEW:
        first = [f"{each.ms / 1000:.1f} s" for each in (act.gateway[worst.number - 1], worst)]
        part = "All" if worst.recomputed == plain else f"{worst.recomputed:,}"
        told.append(
            f"{part} of them in request {worst.number}, where the {worst.who} continues: llama-server "
            "gave the slot of its conversation to the sub-agent, whose prompt begins with the same tools. First token "
            f"there: after {first[0]} behind the gateway, {first[1]} without it."
        )
    if small:
        told.append(f"Small or no gain in requests {', '.join(small)}: {_FEW} tokens at most in each.")
    slower = [
        f"{a.number} ({a.ms / 1000:.1f} s, {b.ms / 1000:.1f} s without it)" for a, b in pairs if a.ms - b.ms > _SLOWER
    ]
    if slower:
        told.append(f"Later to the first token behind the gateway: request {', '.join(slower)}.")
    required = sum(each.required for each in act.plain)
    calls = [sum(bool(each.calls) for each in side) for side in (act.gateway, act.plain)]
    told.append(
        f"Of the {required} calls that the agent required (tool_choice), this small model made {calls[0]} behind the "
        f"gateway and {calls[1]} without it."
    )
    return told


def second_act_as_json(act: SecondAct) -> dict[str, Any]:
    """Both conversations as `--json` prints them. Counts are tokens, times milliseconds."""
    return {
        "gateway": [_request(each) for each in act.gateway],
        "plain": [_request(each) for each in act.plain],
        "summary": sentences(act),
    }


def _request(one: Request) -> dict[str, Any]:
    return {
        "request": one.number,
        "who": one.who,
        "calls": list(one.calls),
        "call_required": one.required,
        "prompt": one.prompt,
        "cached": one.cached,
        "processed": one.processed,
        "recomputed": one.recomputed,
        "ttft_ms": round(one.ms, 2),
    }
