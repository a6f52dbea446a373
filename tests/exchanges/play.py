"""A whole script through one client: steps in, a recording out.

The recording is JSON: the greeting, what was said outside of any request, and the exchanges, with times, random ids and
paths masked.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.exchanges.client import Client
from tests.exchanges.masks import masked
from tests.exchanges.steps import Step
from tests.exchanges.wires import Wire


async def play(wire: Wire, steps: Sequence[Step], *, modern: bool, folder: Path | None = None) -> dict[str, Any]:
    """Play the steps of this era, and give the recording."""
    place = str(folder) if folder else "<folder>"
    roots = [{"uri": f"file://{place}", "name": "work"}]
    async with Client(wire, modern=modern, roots=roots) as client:
        exchanges = [await client.play(step) for step in steps if step.eras == "both" or not modern]
    recording = {"greeting": client.greeting.get("result"), "aside": _once(client.aside), "exchanges": exchanges}
    return masked(recording, [place] if folder else [])


def _once(aside: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How often a server says that a list changed depends on clocks; that it does is kept."""
    kept: list[dict[str, Any]] = []
    for pushed in aside:
        if pushed not in kept:
            kept.append(pushed)
    return sorted(kept, key=str)
