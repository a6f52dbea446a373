"""The numbers that docs/deploy.md states: from what a run measured to bench/results/deploy.json, and to the page.

Turns measurements into a table and a sentence, which are between marks in the page; what a run of only some steps did
not measure stays as it was. A test compares page and results. Measures nothing.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from bench.record import RESULTS, write
from deploy.check.outcome import ROOT, measured

FILE: Final = RESULTS / "deploy.json"
PAGE: Final = ROOT / "docs" / "deploy.md"
_MARKED: Final = re.compile(r"(<!-- measured: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEAD: Final = """\
| what | image above the base | start to ready, clock | CPU time of it | memory when idle |
|---|---|---|---|---|
"""
_GROUPS: Final = ("images", "starts", "services", "rolling")
_STARTS: Final = {
    "no engine, no map": ("gateway, no engine, no map", "gateway"),
    "with a map": ("gateway with a map (49,152 entries)", "gateway"),
    "embedded engine": ("gateway with the embedded engine, context 8192", "gateway-embedded"),
}
_SERVICES: Final = {
    "engine-cpu": ("engine alone (`engine-cpu`), context 8192", "gateway-embedded"),
    "time-leaf": ("`time-leaf` with a map", "leaf"),
}


def record(seconds: float | None) -> None:
    """Write down what this run measured and, for a whole run, how long it took.

    `seconds`: of a whole run; None if only some steps ran. It was `cold` if it made its base image and helm itself.
    """
    before: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    cold = set(measured.get("made", {})) == {"base", "helm"}
    run = {} if seconds is None else {"seconds": round(seconds), "load": round(os.getloadavg()[1], 1)}
    runs = {**before["runs"], **({"cold" if cold else "warm": run} if run else {})}
    groups = {name: {**before[name], **measured.get(name, {})} for name in _GROUPS}
    write("deploy", ["codec-gateway", "codec-leaf"], {**groups, "runs": runs})
    results: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


def filled(page: str, results: Mapping[str, Any]) -> str:
    """Return the page with what the results say between its marks."""
    parts = {"table": _table(results), "runs": _runs(results["runs"])}
    return _MARKED.sub(lambda found: found[1] + parts[found[2]], page)


def _table(results: Mapping[str, Any]) -> str:
    images: Mapping[str, int] = results["images"]
    rows = [
        f"| {words} | {images[image]} MB | {start['seconds']:.1f} s{'*' * start['busy']} | {start['cpu']:.1f} s "
        f"| {start['megabytes']:.0f} MB |\n"
        for name, (words, image) in _STARTS.items()
        if (start := results["starts"][name])
    ]
    rows += [
        f"| {words} | {images[image]} MB | {service['seconds']:.1f} s | | {service['megabytes']:.0f} MB |\n"
        for name, (words, image) in _SERVICES.items()
        if (service := results["services"][name])
    ]
    busy = any(start["busy"] for start in results["starts"].values())
    star = "\n\\* while others used the machine.\n" if busy else ""
    return _HEAD + "".join(rows) + star


def _runs(runs: Mapping[str, Mapping[str, float]]) -> str:
    words = {"warm": "with base image and helm from an earlier run", "cold": "from nothing"}
    said = [
        f"{run['seconds']:.0f} s {words[name]} (load {run['load']:.0f})" for name in words if (run := runs.get(name))
    ]
    return f"A whole run took {' and '.join(said)}, on 2 cores.\n"
