"""The committed results as tables of `docs/scaling.md` and as pictures beside it. Pure except for `publish`.

The page's text is written by hand; what is between its marks is made here.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bench.record import RESULTS
from bench.scaling.simulation import TAILS
from codec_bench.picture import Panel, chart

Results = Mapping[str, Any]
_DOCS: Final = Path(__file__).parents[2] / "docs"
_MARKED: Final = re.compile(
    r"(?<=<!-- scaling )(?P<name>\w+)"
    r"(?P<mark>: python -m bench\.scaling; a test compares -->\n).*?(?=<!-- /scaling -->)",
    re.S,
)
_TIMES: Final = "median as a bar (and 99 in 100 as a line, mark at 95 in 100); less is better"
_CONSTANTS: Final = {
    "prefill": "process one id of a prompt",
    "decode": "a pass that writes one id of one answer",
    "beside": "what each further answer adds to such a pass",
    "move": "save one id to a slot file, or restore it",
    "request": "what the gateway adds before the engine's work",
}


def sizes(results: Results) -> dict[str, Mapping[str, Any]]:
    """Return the scenes in which nothing is special except their size."""
    return {name: row for name, row in results["rows"].items() if ", " not in name}


def events(results: Results) -> dict[str, Mapping[str, Any]]:
    """Return the other scenes, and the one to compare them with."""
    rows: Mapping[str, Mapping[str, Any]] = results["rows"]
    found = {name: row for name, row in rows.items() if ", " in name}
    base = next(iter(found)).partition(", ")[0]
    return {base: rows[base], **found}


def _constants(results: Results) -> Iterator[str]:
    yield from ("| | ms | measured with |", "|---|---:|---|")
    for name, words in _CONSTANTS.items():
        found = results["costs"][name]
        yield f"| {words} | {found['value'] * 1e3:.2f} | {found['from']} |"


def _validation(results: Results) -> Iterator[str]:
    yield "| | found again: real | simulated | difference | ids processed: real | simulated | difference |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    rows: Mapping[str, Mapping[str, Any]] = results["validation"]["rows"]
    for name, row in {**rows, "all": in_all(rows)}.items():
        real, paper, differ = row["real"], row["in_order"], row["differ"]
        found = f"{real['found_again']:.1%} | {paper['found_again']:.1%} | {differ['found_again']:+.1%}"
        yield f"| {name} | {found} | {real['processed']:,} | {paper['processed']:,} | {differ['processed']:+.1%} |"


def in_all(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return all rows together: what was counted, what is simulated in its order, and the difference."""
    held = sum(row["real"]["held"] for row in rows.values())

    def total(side: str) -> dict[str, float]:
        found = sum(row[side]["found_again"] * row["real"]["held"] for row in rows.values()) / held
        return {"found_again": found, "processed": sum(row[side]["processed"] for row in rows.values())}

    real, timed = total("real"), total("in_order")
    return {"real": real, "in_order": timed, "differ": {name: timed[name] / real[name] - 1 for name in real}}


def _alone(results: Results) -> Iterator[str]:
    yield (
        "| | found again: real | simulated | ids processed: real | simulated | range | first token: real | simulated |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, row in results["validation"]["rows"].items():
        real, paper = row["real"], row["on_its_own"]
        least, most = paper["processed_range"]
        ids = f"{real['processed']:,} | {paper['processed']:,} | {least:,} to {most:,}"
        firsts = f"{real['first_s']:.2f} s | {paper['first_s']:.2f} s"
        yield f"| {name} | {real['found_again']:.1%} | {paper['found_again']:.1%} | {ids} | {firsts} |"


def _by_size(results: Results) -> Iterator[str]:
    yield from _rows(sizes(results))


def _by_event(results: Results) -> Iterator[str]:
    yield from _rows(events(results))


def _rows(scenes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| | | found again | first token: median | 95 in 100 | 99 in 100 | engine time per answer | moved |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for name, row in scenes.items():
        shown = row if name != "1 engine" else {"any policy": row["homes"]}
        for place, (policy, figures) in enumerate(shown.items()):
            firsts = " | ".join(f"{figures['first_s'][tail]:.1f} s" for tail in TAILS)
            moved = f"{figures['moved'] / figures['answers']:.1%}"
            work = f"{figures['engine_s_an_answer']:.2f} s"
            yield f"| {'' if place else name} | {policy} | {figures['found_again']:.1%} | {firsts} | {work} | {moved} |"


def _loss(results: Results) -> Iterator[str]:
    yield "| for each engine lost | ids processed again | engine time | answers continued elsewhere |"
    yield "|---|---:|---:|---:|"
    scenes = events(results)
    base, lost = next(iter(scenes.values())), next(row for name, row in scenes.items() if name.endswith("is lost"))
    count = results["lost"]
    for policy, figures in lost.items():
        whole = base[policy]
        ids = (figures["processed"] - whole["processed"]) / count
        work = (figures["engine_s_an_answer"] - whole["engine_s_an_answer"]) * figures["answers"] / count
        yield f"| {policy} | {ids:,.0f} | {work:,.0f} s | {figures['went_on'] / count:.1f} |"


_TABLES: Final[Mapping[str, Callable[[Results], Iterator[str]]]] = {
    "constants": _constants,
    "validation": _validation,
    "alone": _alone,
    "sizes": _by_size,
    "events": _by_event,
    "loss": _loss,
}


def page(text: str, results: Results) -> str:
    """Return the page with its tables made from the results."""

    def table(found: re.Match[str]) -> str:
        return "\n".join([f"{found['name']}{found['mark']}", *_TABLES[found["name"]](results), "", ""])

    return _MARKED.sub(table, text)


def pictures(results: Results) -> dict[str, str]:
    """Return the SVG files by their names."""
    found = [
        Panel(
            f"{name}: found again, %", [(policy, {"found": 100 * row["found_again"]}) for policy, row in rows.items()]
        )
        for name, rows in sizes(results).items()
    ]
    return {
        "scaling-found.svg": chart("What conversations find again", "of the ids that an engine had of them", found),
        "scaling-first.svg": chart(
            "Time to the first token, by the number of engines", _TIMES, _firsts(sizes(results))
        ),
        "scaling-events.svg": chart(
            "Time to the first token where something happens", _TIMES, _firsts(events(results))
        ),
    }


def _firsts(scenes: Mapping[str, Mapping[str, Any]]) -> list[Panel]:
    return [
        Panel(f"{name}: first token, s", [(policy, row["first_s"]) for policy, row in rows.items()])
        for name, rows in scenes.items()
    ]


def publish() -> None:
    """Make tables and pictures from the committed results."""
    results = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))
    if "rows" not in results:
        return
    at = _DOCS / "scaling.md"
    at.write_text(page(at.read_text(encoding="utf-8"), results), encoding="utf-8")
    for name, picture in pictures(results).items():
        (_DOCS / name).write_text(picture, encoding="utf-8")
