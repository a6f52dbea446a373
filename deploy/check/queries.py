"""Every expression of the dashboard and of the alerts, asked of a Prometheus that scraped real traffic.

A silent alert has no data, and neither has a misspelt one. So comparisons are asked with `bool`, and both sides must
exist. The first step says what is asked; the second asks.
"""

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.check.outcome import ROOT, Failed

_COMPARISON = re.compile(r" (==|!=|<=|>=|<|>) (?!bool )")
_PATIENCE: Final = 90.0
RULES: Final = ROOT / "deploy" / "prometheus"
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "dashboards" / "codec-gateway.json"


def expressions(rules: Path = RULES, dashboard: Path = DASHBOARD) -> Iterator[tuple[str, str]]:
    """Yield what is asked, and who asks it: panels as they are, alerts and rules with comparisons made into values."""
    for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']!r}", target["expr"]
    for name in ("rules.yml", "alerts.yml"):
        for group in yaml.safe_load((rules / name).read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                yield rule.get("record") or f"alert {rule['alert']}", as_values(rule["expr"])


def as_values(expression: str) -> str:
    """Return the expression with comparisons that give 0 or 1 instead of leaving out series."""
    return _COMPARISON.sub(r" \1 bool ", expression)


def ask(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the instant vector of an expression. A NaN does not count as data: nobody can read it."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=20) as response:
        answer = json.load(response)
    if answer["status"] != "success":
        raise Failed(f"{expression!r} is no query: {answer}")
    return [sample for sample in answer["data"]["result"] if sample["value"][1] != "NaN"]


def ask_value(url: str, expression: str) -> float:
    """Return the value of an expression that has one. Raises `Failed` if it has none or several."""
    samples = ask(url, expression)
    if len(samples) != 1:
        raise Failed(f"{expression!r} has {len(samples)} values, expected one")
    return float(samples[0]["value"][1])


def ask_all(url: str) -> int:
    """Wait until every expression has data; returns how many there are. Raises `Failed` with those that have none."""
    waiting = list(expressions())
    count = len(waiting)
    deadline = time.monotonic() + _PATIENCE
    while waiting and time.monotonic() < deadline:
        waiting = [(who, expression) for who, expression in waiting if not ask(url, expression)]
        if waiting:
            time.sleep(2)
    if waiting:
        raise Failed("no data: " + "; ".join(f"{who}: {expression}" for who, expression in waiting))
    return count
