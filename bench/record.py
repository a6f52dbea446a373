"""What accompanies every measurement: the machine, the versions, and samples summed up honestly.

Turns samples into medians with their spread and writes one JSON file per benchmark. It measures nothing itself.
"""

import json
import os
import platform
import re
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Return the median, the least and the greatest of samples, and the samples themselves."""
    return {
        "median": round(statistics.median(samples), 4),
        "min": round(min(samples), 4),
        "max": round(max(samples), 4),
        "samples": [round(sample, 4) for sample in samples],
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the sample at that share of sorted ones."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def machine() -> dict[str, Any]:
    """Describe the machine: what a reader needs to judge a number, and nothing that names it."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def write(name: str, packages: Sequence[str], results: Mapping[str, Any]) -> Path:
    """Write `results/<name>.json` with the machine and the packages' versions, and return its path."""
    path = RESULTS / f"{name}.json"
    head = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": {package: version(package) for package in packages},
    }
    RESULTS.mkdir(exist_ok=True)
    path.write_text(on_lines({**head, **results}), encoding="utf-8")
    return path


def on_lines(results: Mapping[str, Any]) -> str:
    """Return JSON in which each innermost table or list is on one line, so that a diff shows a result row as a row."""
    text = json.dumps(results, indent=1, ensure_ascii=False)
    for innermost in (r"\[[^][{}]*\]", r"\{[^{}]*\}"):
        text = re.sub(innermost, lambda found: " ".join(line.strip() for line in found[0].splitlines()), text)
    return text + "\n"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
