"""Outcomes of several targets, side by side: a table for the reader, and the problems that make a run fail.

Pure: outcomes in, lines out. `suite.py` makes outcomes; `__main__.py` prints.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from conformance.suite import ClientLeg, Leg, Outcome

Outcomes = Mapping[str, Outcome]
_BAD: Final = "FAILURE"
_POOR: Final = frozenset({_BAD, "WARNING"})
_LONGEST: Final = 700


def table(leg: Leg | ClientLeg, targets: Mapping[str, Outcomes]) -> Iterator[str]:
    """Yield one line per scenario: passed/failed at each target; `<` marks what is worse than at the first."""
    scenarios = sorted({name for outcomes in targets.values() for name in outcomes})
    width = max([len(name) for name in scenarios] + [len(leg.name)])
    first = next(iter(targets.values()))
    yield "  ".join([leg.name.ljust(width), *(target.ljust(14) for target in targets)])
    for name in scenarios:
        cells = [_cell(outcomes.get(name), first.get(name)) for outcomes in targets.values()]
        yield "  ".join([name.ljust(width), *(cell.ljust(14) for cell in cells)]).rstrip()
    totals = [f"{total(outcomes, 'SUCCESS')}/{total(outcomes, 'FAILURE')}" for outcomes in targets.values()]
    yield "  ".join(["total passed/failed".ljust(width), *(cell.ljust(14) for cell in totals)]).rstrip()


def total(outcomes: Outcomes, status: str) -> int:
    """Return how many checks of all scenarios ended with this status."""
    return sum(outcome.count(status) for outcome in outcomes.values())


def problems(
    leg: Leg, targets: Mapping[str, Outcomes], *, whole: bool, excused: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield a line for each problem: a failed check, one that is worse than at the first target, a short run.

    Args:
        whole: every scenario was run, so that the number of checks counts.
        excused: by target and scenario, the reason why it can't have the same outcome as at the first.
    """
    reference, first = next(iter(targets.items()))
    for target, outcomes in targets.items():
        reasons = excused.get(target, {})
        for name in sorted(first.keys() | outcomes.keys()):
            if name not in reasons:
                yield from _differences(f"{leg.name} {target} {name}", outcomes.get(name), first.get(name), reference)
        passed, expected = (_counted(each, reasons) for each in (outcomes, first))
        if whole and passed < expected + leg.checks - total(first, "SUCCESS"):
            yield f"{leg.name} {target}: {passed} checks passed, expected at least {expected}"


def client_problems(leg: ClientLeg, outcomes: Outcomes, *, whole: bool) -> Iterator[str]:
    """Yield a line for each check of the gateway as a client that failed or warned, and one for a short run."""
    for name, outcome in outcomes.items():
        for check in outcome.checks:
            if check["status"] in _POOR:
                yield f"{leg.name} {name}: {check['id']} ended in {check['status']}: {_why(check)}"
    if whole and total(outcomes, "SUCCESS") < leg.checks:
        yield f"{leg.name}: {total(outcomes, 'SUCCESS')} checks passed, expected at least {leg.checks}"


def _counted(outcomes: Outcomes, reasons: Mapping[str, str]) -> int:
    return sum(outcome.count("SUCCESS") for name, outcome in outcomes.items() if name not in reasons)


def _cell(outcome: Outcome | None, first: Outcome | None) -> str:
    if outcome is None:
        return "not run <"
    return f"{outcome} <" if first is None or _is_worse(outcome, first) else str(outcome)


def _differences(where: str, outcome: Outcome | None, first: Outcome | None, reference: str) -> Iterator[str]:
    if outcome is None:
        yield f"{where}: was not run"
        return
    for check in outcome.checks:
        if check["status"] == _BAD:
            yield f"{where}: {check['id']} failed: {_why(check)}"
    if first is not None and _is_worse(outcome, first):
        more, less = outcome.statuses - first.statuses, first.statuses - outcome.statuses
        yield f"{where}: worse than {reference}: has {_listed(more)}, lacks {_listed(less)}"


def _is_worse(outcome: Outcome, first: Outcome) -> bool:
    """Whether a check passes at the first and not here, or warns here and not there. Notes don't count."""
    more, less = outcome.statuses - first.statuses, first.statuses - outcome.statuses
    return any(status == "SUCCESS" for _, status in less) or any(status in _POOR for _, status in more)


def _why(check: Mapping[str, Any]) -> str:
    said = f"{check.get('errorMessage') or ''} {json.dumps(check.get('details'), ensure_ascii=False)}"
    return said if len(said) <= _LONGEST else said[:_LONGEST] + "..."


def _listed(statuses: Mapping[tuple[str, str], int]) -> str:
    names: Sequence[str] = [f"{number}x {check} {status}" for (check, status), number in sorted(statuses.items())]
    return ", ".join(names) or "nothing"
