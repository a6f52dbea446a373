"""The bars that the paging must meet: each one, what was measured, and whether it is held or missed.

Pure: reads results. A bar that is missed is shown as missed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Results = Mapping[str, Any]
WHOLE: Final = 0.99
POINTS: Final = 10.0
SLACK: Final = 1.02
TIE: Final = 0.05
"""Nats between two ids beyond which rounding, which depends on how a prompt is cut into batches, does not decide."""
PARTS: Final = {"1": "W", "2": "W/2", "4": "W/4"}


class Bar(NamedTuple):
    """One bar."""

    what: str
    bar: str
    measured: str
    held: bool


def bars(results: Results) -> Iterator[Bar]:
    """Return all of them, scene by scene."""
    for name, row in results["scenes"].items():
        what, part = named(name)
        reuse, stock = row["ours"]["reuse"]["median"], row["stock"]["reuse"]["median"]
        if part == "1":
            yield Bar(f"{what}, W: found again", f"{WHOLE:.0%} at least", f"{reuse:.1%}", reuse >= WHOLE)
        else:
            short = (row["best"] - reuse) * 100
            within = f"{reuse:.1%} of {row['best']:.1%}: {max(short, 0):.1f} points"
            most = f"{POINTS:g} points below the best policy at most"
            yield Bar(f"{what}, {PARTS[part]}: found again", most, within, short <= POINTS)
            least = f"at least the stock server's {stock:.1%}"
            yield Bar(f"{what}, {PARTS[part]}: found again", least, f"{reuse:.1%}", reuse >= stock)
        ours, theirs = (row[side]["processed"]["median"] for side in ("ours", "stock"))
        most = f"2 % more than the stock server's {theirs:,.0f} at most"
        yield Bar(f"{what}, {PARTS[part]}: ids processed", most, f"{ours:,.0f}", ours <= theirs * SLACK)
    ours = [row["ours"] for row in results["scenes"].values()]
    yield _exact("answers that differ from those of an engine without a cache, ties aside", ours)
    yield _exact("the same for two gateways on one server with a host cache", [results["apart"]["two"]])


def _exact(what: str, rows: list[Mapping[str, Any]]) -> Bar:
    asked, others, beyond = (sum(row[key] for row in rows) for key in ("answers", "differing", "beyond_ties"))
    return Bar(what, "none", f"{beyond} of {asked:,}, and {others - beyond} ties", beyond == 0)


def named(scene: str) -> tuple[str, str]:
    """Return what is played, in words, and the part of W."""
    crowd, shape, part = scene.split(" | ")
    talks, _, slots = crowd.partition(" on ")
    count = "1 conversation" if talks == "1" else f"{talks} conversations"
    return f"{count} on {slots} slot{'s' * (slots != '1')}, {shape}", part
