"""How much of a bounded thing one principal may have: a share of the bound, so that no key can take all from others.

Counts by principal what is taken and given back, and refuses in words what is over the share or over the bound. Who is
alone (no credentials are configured) or runs the gateway has the whole bound. Sans-IO: it knows neither what it counts
nor how a refusal is sent.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gateway.proxy.caller import Principal

Limit = Literal["share", "bound"]


@dataclass(frozen=True, slots=True)
class OverBound:
    """Why nothing more was given."""

    limit: Limit
    message: str
    """For the client: what is taken, how much of it is theirs, what to do."""


def _ignore(_kind: str, _limit: Limit) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class ShareRule:
    """What holds for all bounds of one gateway."""

    share: float = 1.0
    """Part of each bound that one principal may take (`limits.principal_share`)."""
    refused: Callable[[str, Limit], None] = _ignore
    """Told the kind of each thing that was refused, and why."""

    def shares(self, kind: str, bound: int, what: str, setting: str = "") -> "Shares":
        """Counts one kind of thing.

        Args:
            kind: for the metric, one of `BOUND_KINDS`.
            what: the things, in words, as "sessions".
            setting: where the bound is set; empty: nowhere.
        """
        return Shares(self, kind, bound, what, setting)


class Shares:
    """What all principals have of one kind of thing."""

    __slots__ = ("_bound", "_has", "_kind", "_rule", "_setting", "_what", "taken")

    def __init__(self, rule: ShareRule, kind: str, bound: int, what: str, setting: str) -> None:
        """Nothing is taken. To be made by `ShareRule.shares`."""
        self.taken = 0
        self._rule = rule
        self._kind = kind
        self._bound = bound
        self._what = what
        self._setting = f" ({setting})" if setting else ""
        self._has: Counter[str] = Counter()

    def take(self, principal: Principal, amount: int = 1) -> OverBound | None:
        """Take so much for this principal (None), or say why not: then nothing is taken.

        What was taken is to be given back by `give_back`.
        """
        over = self.over(principal, amount)
        if over is None:
            self.taken += amount
            self._has[principal.name] += amount
        else:
            self._rule.refused(self._kind, over.limit)
        return over

    def give_back(self, principal: Principal, amount: int = 1) -> None:
        """So much is free again."""
        self.taken -= amount
        self._has[principal.name] -= amount
        if not self._has[principal.name]:
            del self._has[principal.name]

    def left(self, principal: Principal) -> int:
        """How much this principal could take now; below zero where more was spent than was taken."""
        return min(self._bound - self.taken, self._share(principal) - self._has[principal.name])

    def over(self, principal: Principal, amount: int = 1) -> OverBound | None:
        """Why so much can't be taken; None: it can."""
        share = self._share(principal)
        if not principal.alone and self._has[principal.name] + amount > share:
            return OverBound(
                "share",
                f"{principal.name!r} has {self._has[principal.name]} of the {self._bound} {self._what}"
                f"{self._setting}, and its share is {share} (limits.principal_share): "
                "end what is not needed any more, or ask the operator for more",
            )
        if self.taken + amount > self._bound:
            return OverBound("bound", f"all {self._bound} {self._what} are taken{self._setting}; call again later")
        return None

    def _share(self, principal: Principal) -> int:
        return self._bound if principal.alone else max(1, int(self._bound * self._rule.share))
