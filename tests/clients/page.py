"""The tables that say which clients were tried, and what they gained: of docs/openai-apps.md and README.md.

Both come from the numbers of a run.
"""

import json
from collections.abc import Iterable
from statistics import fmean
from typing import Any, Final

from bench.record import on_lines
from tests.clients.clients import CLIENTS, HERE

FILE: Final = HERE / "results.json"
PAGE: Final = HERE.parents[1] / "docs" / "openai-apps.md"
README: Final = HERE.parents[1] / "README.md"
CROWDED: Final = HERE.parents[1] / "bench" / "results" / "cache.json"
KINDS: Final = CROWDED.with_name("cache_kinds.json")
_BEGIN: Final = "<!-- measured: clients -->\n"
_GAINS: Final = "<!-- measured: gains -->\n"
_END: Final = "<!-- end -->"
_HEAD: Final = """\
| client | version | requests | embedded | drift | llama.cpp server | drift | processed | it alone | processed |
|---|---|---|---|---|---|---|---|---|---|
"""
_GAINS_HEAD: Final = """\
| conversation | cached through the gateway | cached by the engine alone |
|---|---|---|
| the gateway runs the tools | everything | what precedes a call that is tokenized differently |
"""
_GAINS_REST: Final = """\
| template or client changes the history, such as reasoning | what precedes the change, which is reported | the same |
| first request; short histories on a fast GPU | no gain | |
"""


def row(name: str, result: dict[str, Any]) -> str:
    """Give a client's row."""
    cells = [CLIENTS[name].words, result["version"], result["embedded"]["requests"]]
    for where in ("embedded", "gateway", "alone"):
        held = result[where]
        cells.append(f"{held['whole']} of {held['turns']}{', then it broke' if held['faults'] else ''}")
        if where != "alone":
            cells.append(held["drift"])
        if where != "embedded":
            cells.append(f"{held['processed']:,}, {held['again']:,} again")
    return f"| {' | '.join(map(str, cells))} |"


def filled(page: str, results: dict[str, Any]) -> str:
    """Give the page with these results in it."""
    rows = "\n".join(row(name, result) for name, result in results.items())
    return _between(page, _BEGIN, f"{_HEAD}{rows}\n")


def with_gains(readme: str, results: dict[str, Any]) -> str:
    """Give the README with the sums of these results in it."""
    through, alone = (_sums(results, where) for where in ("gateway", "alone"))
    found = (
        f"| {len(results)} clients run their own tools; the template only appends "
        f"| everything in {through['whole']} of {through['turns']} turns; {through['again']:,} tokens recomputed "
        f"| everything in {alone['whole']} of {alone['turns']}; {alone['again']:,} of {alone['processed']:,} "
        "prompt tokens recomputed |\n"
    )
    return _between(readme, _GAINS, f"{_GAINS_HEAD}{found}{_crowded()}{_windowed()}{_GAINS_REST}")


def _crowded() -> str:
    """The row of conversations that outnumber the slots, from the results of their bench."""
    scenes = json.loads(CROWDED.read_text(encoding="utf-8"))["scenes"]
    cells = {"ours": list[str](), "stock": list[str]()}
    for part in ("1", "4"):
        chosen = [scene for name, scene in scenes.items() if name.startswith("40 on 4") and name.endswith(f"| {part}")]
        for whose, found in cells.items():
            found.append(_range(scene[whose]["reuse"]["median"] for scene in chosen))
    ours, stock = (", or ".join(found) for found in cells.values())
    return f"| 40 conversations on 4 slots; memory for all, or for a quarter | {ours} | {stock} |\n"


def _windowed() -> str:
    """The row of a model with sliding windows, from the results of the bench of kinds."""
    kinds = json.loads(KINDS.read_text(encoding="utf-8"))["kinds"]
    (kind,) = (kind for name, kind in kinds.items() if name.startswith("a tiny Gemma 3"))
    ours, stock = (round(fmean(kind[side]["reasoning"]["again"]["samples"])) for side in ("ours", "stock"))
    return (
        "| 30 on 2 slots, sliding windows as in Gemma 3, reasoning dropped "
        f"| {ours:,} tokens a question recomputed | {stock:,} |\n"
    )


def _range(shares: Iterable[float]) -> str:
    percent = sorted(round(share * 100, 1) for share in shares)
    least, most = f"{percent[0]:g}", f"{percent[-1]:g}"
    return f"{most} %" if least == most else f"{least} to {most} %"


def _sums(results: dict[str, Any], where: str) -> dict[str, int]:
    return {key: sum(each[where][key] for each in results.values()) for key in ("turns", "whole", "processed", "again")}


def _between(page: str, begin: str, text: str) -> str:
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(_END)
    return f"{before}{begin}{text}{_END}{after}"


def write(results: dict[str, Any]) -> None:
    """Keep the results, with those kept before of clients that were left out, and fill the page."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    every = {**kept, **results}
    ordered = {name: every[name] for name in CLIENTS if name in every}
    FILE.write_text(on_lines(ordered), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), ordered), encoding="utf-8")
    README.write_text(with_gains(README.read_text(encoding="utf-8"), ordered), encoding="utf-8")
