"""Merges the reports of all workers into one: whether the gateway is ready, and its status.

Turns JSON values into one of the same form. Counts are added up. Where all workers should report the same, the worst or
the first report is taken. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

Report = dict[str, Any]
Reports = Mapping[int, Report]
"""By worker number."""

_PROMPTS: Final = 20
_STATES: Final = ("down", "restarting", "starting", "idle", "up", "ready")
"""The worst comes first."""
_BREAKERS: Final = ("open", "half_open", "closed")
_ADDED: Final = ("sessions", "in_flight", "queued", "restarts", "answers")


def merge_readiness(reports: Reports, count: int, *, draining: bool) -> Report:
    """`/healthz/ready` of all workers: the gateway is ready as soon as one of them is.

    Args:
        reports: from the workers that answered.
        count: how many workers there should be.
    """
    ready = not draining and any(report["ready"] for report in reports.values())
    reasons = [f"worker {number}: {reason}" for number, report in reports.items() for reason in report["reasons"]]
    reasons += [f"worker {number} does not answer" for number in range(count) if number not in reports]
    if draining:
        reasons.insert(0, "draining: the gateway is stopping")
    engines = [report["engine"] for report in reports.values() if "engine" in report]
    return {
        "ready": ready,
        "draining": draining,
        "components": _merge_by_key([report["components"] for report in reports.values()], all),
        "reasons": reasons,
        "workers": {"ready": sum(bool(report["ready"]) for report in reports.values()), "of": count},
        **{name: _details(name, list(reports.values())) for name in ("upstreams", "engines") if _any(name, reports)},
        **({"engine": _one(engines)} if engines else {}),
    }


def merge_status(reports: Sequence[Report], ready: Report, workers: Sequence[Report]) -> Report:
    """`/status` of all workers; at least one answered. `ready`: see `merge_readiness`; `workers`: a line for each."""
    first = reports[0]
    return {
        **first,
        "ready": ready["ready"],
        "reasons": ready["reasons"],
        "started": min(report["started"] for report in reports),
        "uptime": max(report["uptime"] for report in reports),
        "definition_advice": next((each for report in reports if (each := report["definition_advice"])), None),
        "servers": _by_name([report["servers"] for report in reports]),
        "engine": next((report["engine"] for report in reports if not report["engine"]["up"]), first["engine"]),
        "engines": _by_name([report["engines"] for report in reports]),
        "shared": next(
            (each for report in reports if (each := report["shared"]) and not each["up"]), first.get("shared")
        ),
        "shim": _merge_counts([report["shim"] for report in reports]),
        "prompt_tokens": _merge_counts([report["prompt_tokens"] for report in reports]),
        "tool_faults": _each_once([each for report in reports for each in report["tool_faults"]]),
        "prompts": _latest([each for report in reports for each in report["prompts"]]),
        "workers": list(workers),
    }


def _merge_by_key(values: Iterable[Mapping[str, Any]], join: Callable[[list[Any]], Any]) -> Report:
    found: dict[str, list[Any]] = {}
    for each in values:
        for name, value in each.items():
            found.setdefault(name, []).append(value)
    return {name: join(several) for name, several in found.items()}


def _each_once(faults: Sequence[Report]) -> list[Report]:
    return list({tuple(each.items()): each for each in faults}.values())


def _any(name: str, reports: Reports) -> bool:
    return any(name in report for report in reports.values())


def _details(name: str, reports: Sequence[Report]) -> Report:
    return _merge_by_key([report[name] for report in reports if name in report], _one)


def _by_name(lists: Sequence[Sequence[Report]]) -> list[Report]:
    """Merge lists of the same servers or engines into one, with one report for each."""
    return list(_merge_by_key([{each["name"]: each for each in several} for several in lists], _one).values())


def _one(several: Sequence[Report]) -> Report:
    """One server or engine, as several workers see it."""
    worst = min(several, key=_standing)
    sums = {key: sum(each[key] for each in several) for key in _ADDED if key in worst}
    return {**worst, **sums}


def _standing(report: Report) -> tuple[int, int, bool]:
    state, breaker = report.get("state", "up"), report.get("breaker", "closed")
    return _STATES.index(state), _BREAKERS.index(breaker), bool(report.get("up", True))


def _merge_counts(several: Sequence[Any]) -> Any:
    """Add up numbers, however deeply nested. Of times take the earliest, of anything else the first."""
    first = several[0]
    if isinstance(first, Mapping):
        return _merge_by_key(several, _merge_counts)
    if isinstance(first, str):
        return min(several)
    return sum(several) if isinstance(first, int | float) and not isinstance(first, bool) else first


def _latest(prompts: Sequence[Report]) -> list[Report]:
    return sorted(prompts, key=lambda each: each["when"], reverse=True)[:_PROMPTS]
