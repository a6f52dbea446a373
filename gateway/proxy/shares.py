"""How much of a bounded thing one principal may hold: a share of the bound, so that no key can take everything.

Counts what each principal takes and gives back (sessions, streams, calls at a time), and refuses, in words, what is
over the share or the bound. A principal that is alone (no credentials are configured) or runs the gateway has the whole
bound. Sans-IO: it knows neither what it counts nor how a refusal is sent.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gateway.proxy.caller import Principal

Limit = Literal["share", "bound"]


@dataclass(frozen=True, slots=True)
class OverBound:
    """Why nothing was given."""

    limit: Limit
    message: str
    """For the client: what is taken, what their share is, and what to do."""


def _ignore(_kind: str, _limit: Limit) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True)
class ShareRule:
    """What applies to all bounds of one gateway."""

    share: float = 1.0
    """Fraction of each bound that one principal may take (`limits.principal_share`)."""
    refused: Callable[[str, Limit], None] = _ignore
    """Called with the kind of each thing that was refused, and why."""

    def most(self, bound: int) -> int:
        """One principal's share of a bound."""
        return max(1, int(bound * self.share))

    def shares(self, kind: str, bound: int, what: str, setting: str = "") -> "Shares":
        """Return a counter of one kind of thing.

        Args:
            kind: for the metric, one of `BOUND_KINDS`.
            what: the things in words, such as "sessions".
            setting: the setting of the bound; empty: it can't be set.
        """
        return Shares(self, kind, bound, what, setting)


class Shares:
    """What all principals hold of one kind of thing."""

    __slots__ = ("_bound", "_has", "_kind", "_rule", "_setting", "_what", "taken")

    def __init__(self, rule: ShareRule, kind: str, bound: int, what: str, setting: str) -> None:
        """Start with nothing taken. Made by `ShareRule.shares`."""
        self.taken = 0
        self._rule = rule
        self._kind = kind
        self._bound = bound
        self._what = what
        self._setting = f" ({setting})" if setting else ""
        self._has: Counter[str] = Counter()

    def take(self, principal: Principal, amount: int = 1) -> OverBound | None:
        """Take this amount for the principal and return None, or take nothing and say why.

        What was taken must be returned with `give_back`.
        """
        over = self.over(principal, amount)
        if over is None:
            self.taken += amount
            self._has[principal.name] += amount
        else:
            self._rule.refused(self._kind, over.limit)
        return over

    def give_back(self, principal: Principal, amount: int = 1) -> None:
        """Return this amount."""
        self.taken -= amount
        self._has[principal.name] -= amount
        if not self._has[principal.name]:
            del self._has[principal.name]

    def over(self, principal: Principal, amount: int = 1) -> OverBound | None:
        """Why this amount can't be taken; None: it can."""
        share = self._share(principal)
        if not principal.alone and self._has[principal.name] + amount > share:
            return OverBound(
                "share",
                f"{principal.name!r} already has {self._has[principal.name]} of the {self._bound} {self._what}"
                f"{self._setting}, and its share is {share} (limits.principal_share): "
                "end what is no longer needed, or ask the operator for a larger share",
            )
        if self.taken + amount > self._bound:
            return OverBound("bound", f"all {self._bound} {self._what} are in use{self._setting}; try again later")
        return None

    def _share(self, principal: Principal) -> int:
        return self._bound if principal.alone else self._rule.most(self._bound)
