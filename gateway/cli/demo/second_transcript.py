"""The second act, for people (a table) and for machines. It shows what was measured and computes nothing but sums."""

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gateway.cli.demo.second_act import Asked, SecondAct

_TABLE_WIDTH = 72
"""Columns that the table needs; on a narrower terminal it becomes a list."""


def show_second_act(act: SecondAct, console: Console) -> None:
    """Print both conversations side by side; fits a terminal of any width."""
    console.print()
    console.print(Text("An application with a tool of its own: OpenAI's client, four requests", style="bold"))
    if console.width < _TABLE_WIDTH:
        _list(act, console)
    else:
        console.print(_table(act))
    meaning = (
        "new: ids the engine had to process; lost: those of them that it had held before; ms: to the first id. Both "
        "times the same program runs, each with a llama-server of its own that is started in the same way. Without the "
        "gateway (alone), the program begins the call for the model, which would not call otherwise; the model then "
        "writes something else, so the numbers of new ids differ too."
    )
    console.print(Padding(Text(meaning, style="dim"), (0, 0, 1, 0)))
    _show_losses(act, console)
    through, alone = (sum(each.lost for each in way) for way in (act.through, act.alone))
    console.print(
        Text.assemble(
            "Of the ids that it had held, the engine processed ",
            (f"{through} ids", "bold green"),
            f" again behind the gateway, and {alone} without it. The first request gains nothing.",
        )
    )


def _table(act: SecondAct) -> Table:
    table = Table(pad_edge=False, box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("request")
    table.add_column("the model")
    for way, style in (("gateway", "green"), ("alone", "")):
        first, *others = ("new", "lost", "ms")
        table.add_column(f"{way}\n{first}", justify="right", style=style)
        for name in others:
            table.add_column(f"\n{name}", justify="right", style=style)
    for number, (through, alone) in enumerate(zip(act.through, act.alone, strict=True), 1):
        table.add_row(str(number), _did(through, alone), *_cost(through), *_cost(alone))
    return table


def _list(act: SecondAct, console: Console) -> None:
    for number, pair in enumerate(zip(act.through, act.alone, strict=True), 1):
        console.print(f"request {number}: the model {_did(*pair)}")
        for way, one in zip(("gateway", "alone"), pair, strict=True):
            new, lost, wait = _cost(one)
            console.print(f"  {way}: {new} new, {lost} lost, {wait} ms")


def _did(through: Asked, alone: Asked) -> str:
    """What the model does; with and without the gateway it may do different things."""
    did = [f"calls {len(one.calls)}×" if one.calls else "answers" for one in (through, alone)]
    return did[0] if did[0] == did[1] else f"{did[0]}, alone {did[1]}"


def _cost(one: Asked) -> tuple[str, str, str]:
    return str(one.processed), str(one.lost), f"{one.ms:.0f}"


def _show_losses(act: SecondAct, console: Console) -> None:
    for way, asked in (("through the gateway", act.through), ("alone", act.alone)):
        for number, one in enumerate(asked, 1):
            if one.why is not None:
                console.print(f"  request {number}, {way}: {one.lost} of {one.held} ids lost, because {one.why}")
                if asked[number - 2].calls:
                    wrote = asked[number - 2].calls[0].replace("\n", "⏎")
                    console.print(Text.assemble("    the model wrote ", (wrote, "green")))


def second_act_as_json(act: SecondAct) -> dict[str, Any]:
    """Both conversations as `--json` prints them. Counts are ids, times milliseconds."""
    return {"through": [_asked(each) for each in act.through], "alone": [_asked(each) for each in act.alone]}


def _asked(one: Asked) -> dict[str, Any]:
    return {
        "calls": list(one.calls),
        "held": one.held,
        "prompt_n": one.processed,
        "cache_n": one.reused,
        "lost": one.lost,
        "why": one.why,
        "ttft_ms": round(one.ms, 2),
    }
