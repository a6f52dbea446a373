"""One rule's outcome for one tool, and all of them for a target.

A rule passes, fails, warns (it works, but at somebody's cost), is skipped with the reason, or notes what was seen. A
target is good if nothing failed: a server without ids is a good plain server. Knows no rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["pass", "warn", "fail", "skip", "note"]
Kind = Literal["leaf", "plain", "uncalled", "bolt-on", "manifest", "unreachable"]

_MEANING: dict[Kind, str] = {
    "leaf": "a leaf: its texts carry token ids",
    "plain": "not a leaf: a plain MCP server",
    "uncalled": "an MCP server, none of whose tools was called",
    "bolt-on": "a bolt-on tool",
    "manifest": "manifests of bolt-on tools",
    "unreachable": "a server that could not be checked",
}
_COUNTED: dict[Outcome, str] = {"fail": "failed", "warn": "warned", "pass": "passed"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one rule says about one tool, or about the whole target if `tool` is empty."""

    check: str
    """The rule, in a few words that never change."""
    outcome: Outcome
    detail: str
    """For a person. Control characters in what a tool said are escaped."""
    tool: str = ""

    def to_fields(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return {"check": self.check, "outcome": self.outcome, "tool": self.tool, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Report:
    """All verdicts of one target."""

    kind: Kind
    verdicts: tuple[Verdict, ...]

    @property
    def good(self) -> bool:
        """Whether nothing failed."""
        return all(verdict.outcome != "fail" for verdict in self.verdicts)

    @property
    def summary(self) -> str:
        """One sentence: what it is, and how many rules failed or warned."""
        counts = {outcome: self._count(outcome) for outcome in _COUNTED}
        told = [f"{counts[outcome]} {word}" for outcome, word in _COUNTED.items() if counts[outcome]]
        return f"{_MEANING[self.kind]}; {', '.join(told) or 'nothing was checked'}"

    def to_fields(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        return {
            "kind": self.kind,
            "good": self.good,
            "summary": self.summary,
            "checks": [verdict.to_fields() for verdict in self.verdicts],
        }

    def _count(self, outcome: Outcome) -> int:
        return sum(verdict.outcome == outcome for verdict in self.verdicts)


def verdict_of(check: str, faults: Sequence[str], good: str, tool: str = "", *, outcome: Outcome = "fail") -> Verdict:
    """Return a rule's verdict: its first fault and how many more there are, or that it holds.

    Args:
        check: the rule.
        faults: what breaks it.
        good: the detail if nothing does.
        tool: the tool that was asked.
        outcome: what a fault counts as.
    """
    if not faults:
        return Verdict(check, "pass", good, tool)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return Verdict(check, outcome, f"{faults[0]}{more}", tool)
