"""The table of docs/openai-apps.md that says which clients were tried, from the numbers of a run."""

import json
from typing import Any, Final

from bench.record import on_lines
from tests.clients.clients import CLIENTS, HERE

FILE: Final = HERE / "results.json"
PAGE: Final = HERE.parents[1] / "docs" / "openai-apps.md"
_BEGIN: Final = "<!-- measured: clients -->\n"
_END: Final = "<!-- end -->"
_HEAD: Final = """\
| client | version | requests | embedded | drift | llama.cpp server | drift | processed | it alone | processed |
|---|---|---|---|---|---|---|---|---|---|
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
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = "\n".join(row(name, result) for name, result in results.items())
    return f"{before}{_BEGIN}{_HEAD}{rows}\n{_END}{after}"


def write(results: dict[str, Any]) -> None:
    """Keep the results, with those kept before of clients that were left out, and fill the page."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    every = {**kept, **results}
    ordered = {name: every[name] for name in CLIENTS if name in every}
    FILE.write_text(on_lines(ordered), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), ordered), encoding="utf-8")
