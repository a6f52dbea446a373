"""The story, for people (a transcript and two tables) and for machines (one JSON object).

It shows what was measured and computes nothing but sums.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from codec_demo.story import Answered, Story
from codec_demo.text_path import TextTurn
from gateway.agent.events import GenerationFinished
from gateway.agent.figures import reused_share
from gateway.serve.generation.codec_field import turn_numbers

_WIDTH = 100
_TABLE_WIDTH = 76
"""Columns that the table of turns needs; on a narrower terminal it becomes a list."""
_SOURCES = {
    "leaf": ("from the tool", "green", "it uses codec-leaf and sent these ids with its text; the gateway checked them"),
    "shim": ("from the gateway", "yellow", "the tool sent text only; the gateway tokenized it"),
    "gateway": ("from the gateway", "red", "the call failed; this is the gateway's own message"),
}


def show_story(story: Story, console: Console) -> None:
    """Print the transcript; fits a terminal of any width."""
    console.width = min(console.width, _WIDTH)
    console.print(
        Text.assemble(("One conversation on ", "bold"), (story.model, "bold cyan"), (", token in, token out", "bold"))
    )
    for one in story.answered:
        _show_answered(one, console)
    console.print()
    _show_turns(story, console)
    _show_drift(story, console)
    _show_sums(story, console)


def _show_answered(one: Answered, console: Console) -> None:
    console.print()
    _line(console, "user", one.question.text, "bold")
    if one.call is not None:
        word, style, meaning = _SOURCES[one.call.source]
        _line(console, "model", f"calls {one.call.name} {one.call.arguments}", "cyan")
        count = one.call.leaf_ids + one.call.shim_ids
        _line(console, "tool", one.call.text, "")
        if one.ids:
            _line(console, "ids", " ".join(map(str, one.ids)), style)
        _line(console, "", f"{count} ids · {word}: {meaning}", style)
    _line(console, "model", one.answer or "(no answer)", "bold green")


def _line(console: Console, who: str, text: str, style: str) -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=6, style="dim", justify="right")
    grid.add_column(ratio=1)
    grid.add_row(who, Text(text, style=style))
    console.print(grid)


def _show_turns(story: Story, console: Console) -> None:
    console.print(Text("What each turn cost the engine, in prompt ids", style="bold"))
    turns = list(zip(story.turns, story.text.turns, strict=True))
    if console.width < _TABLE_WIDTH:
        _list_turns(turns, console)
    else:
        console.print(_turn_table(turns))
    meaning = (
        "new: ids the engine had to process; reused: ids its KV cache still held; ms: to the next token. As ids: the "
        "gateway keeps the conversation in token ids, and adds those of tool results and of the chat template. As "
        "text: what a program does that keeps messages as text, applies the template and tokenizes all of it for each "
        "turn. Both ran the same questions on the same engine at temperature 0, each in a slot of its own; they took "
        "turns in going first."
    )
    console.print(Padding(Text(meaning, style="dim"), (0, 0, 1, 0)))


def _turn_table(turns: Sequence[tuple[GenerationFinished, TextTurn]]) -> Table:
    table = Table(pad_edge=False, box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("turn")
    table.add_column("wrote", justify="right")
    table.add_column("added")
    for path, style in (("as ids", "green"), ("as text", "")):
        table.add_column(f"{path}\nnew", justify="right", style=style)
        table.add_column("\nreused", justify="right", style=style)
        table.add_column("\nms", justify="right", style=style)
    for n, (turn, text) in enumerate(turns, start=1):
        table.add_row(str(n), str(turn.generated), _added(turn), *_cost(turn), *_cost(text))
    return table


def _list_turns(turns: Sequence[tuple[GenerationFinished, TextTurn]], console: Console) -> None:
    for n, (turn, text) in enumerate(turns, start=1):
        console.print(f"turn {n}: wrote {turn.generated}, added {_added(turn)}")
        for path, one in (("ids", turn), ("text", text)):
            new, reused, wait = _cost(one)
            console.print(f"  as {path}: {new} new, {reused} reused, {wait} ms")


def _added(turn: GenerationFinished) -> str:
    parts = [("tool", turn.reinjected_leaf + turn.reinjected_shim), ("template", turn.scaffold)]
    return " + ".join(f"{count} {name}" for name, count in parts if count) or "nothing"


def _cost(turn: GenerationFinished | TextTurn) -> tuple[str, str, str]:
    wait = f"{turn.ttft * 1000:.0f}"
    return (str(turn.timings.prompt_n), str(turn.timings.cache_n), wait) if turn.timings else ("-", "-", wait)


def _show_drift(story: Story, console: Console) -> None:
    drifted = [(n, t.drift) for n, t in enumerate(story.text.turns, start=1) if t.drift.first is not None]
    if not drifted:
        return
    console.print(Text("As text, the history came back as other ids than the model wrote (drift)", style="bold"))
    for turn, drift in drifted:
        console.print(f"  turn {turn}: {drift.positions} positions, the first at {drift.first}")
        console.print(Text.assemble("    wrote      ", (_visible(drift.wrote), "green")))
        console.print(Text.assemble("    came back  ", (_visible(drift.came_back), "red")))
    console.print()


def _visible(text: str) -> str:
    return text.replace("\n", "⏎")


def _show_sums(story: Story, console: Console) -> None:
    token = sum(t.timings.prompt_n for t in story.turns[1:] if t.timings)
    text = sum(t.timings.prompt_n for t in story.text.turns[1:])
    shares = [share for turn in story.turns if (share := reused_share(turn)) is not None]
    worst = min(shares, default=0.0)
    reused = "every id" if worst >= 1 else f"at least {worst:.1%} of the ids"
    console.print(
        Text.assemble(
            "After the first turn the engine processed ",
            (f"{token} prompt ids", "bold green"),
            f" for the conversation as ids, and {text} for the one as text. As ids, each turn reused ",
            (reused, "bold green"),
            " of the turn before.",
        )
    )
    shipped, made = story.shim_metrics["leaf_bypasses"], story.shim_metrics["tokenize_calls"]
    console.print(f"Ids of tool results: {shipped} sent by the tool, {made} made by the gateway.")


def story_as_json(story: Story) -> dict[str, Any]:
    """The whole story as `--json` prints it. Counts are ids, times milliseconds."""
    drift = [turn.drift for turn in story.text.turns]
    return {
        "model": story.model,
        "map_id": story.map_id,
        "answer": story.answered[-1].answer,
        "answers": [{"question": one.question.text, "answer": one.answer} for one in story.answered],
        "tool_calls": [
            {
                "name": one.call.name,
                "arguments": one.call.arguments,
                "source": one.call.source,
                "result": one.call.text,
                "ids": one.ids,
                "is_error": one.call.is_error,
            }
            for one in story.answered
            if one.call is not None
        ],
        "turns": [turn_numbers(turn) for turn in story.turns],
        "text_path": {
            "answer": story.answered[-1].text_answer,
            "turns": _text_turns(story.text.turns),
            "drift_positions": sum(d.positions for d in drift),
        },
        "metrics": {
            "bypasses": story.shim_metrics["leaf_bypasses"],
            "shim_tokenizations": story.shim_metrics["tokenize_calls"],
        },
    }


def _text_turns(turns: Sequence[TextTurn]) -> list[dict[str, Any]]:
    return [
        {
            "generated": turn.generated,
            "reinjected": {"leaf": 0, "shim": 0},
            "scaffold": 0,
            "held": turn.held,
            "cache_n": turn.timings.cache_n,
            "prompt_n": turn.timings.prompt_n,
            "prefilled": 0,
            "reuse": round(turn.timings.cache_n / turn.held, 4) if turn.held else None,
            "ttft_ms": round(turn.ttft * 1000, 2),
            "drift_positions": turn.drift.positions,
            "drift_first": turn.drift.first,
        }
        for turn in turns
    ]
