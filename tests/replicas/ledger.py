"""What became of every call, and whether it may: held against what servers did, and what happened to replicas.

A call may be lost only where the replica that had it, or the one that was asked, was killed meanwhile. One that did not
run may have been refused for a session that ended with its replica. Everything else is a fault. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

ANSWERED = "answered"
CANCELLED = "cancelled by its client"
UNANSWERED = "connection broke off"
SESSION_GONE = "404: session gone"
CALL_GONE = "-32602: waiting call gone"
_SLACK = 0.5
"""Seconds by which what happened to a replica may be noticed later than it was."""
_WRITTEN = 1.0
"""Seconds within which an answer that its server gave is in the store."""


@dataclass
class Call:
    """One call: what was asked of whom, and how it ended."""

    number: int
    era: str
    kind: str
    owner: str | None = None
    """The replica that had it, where that is known."""
    asked: set[str] = field(default_factory=set[str])
    """The replicas that were asked on its way, as the balancer tells."""
    since: float = 0.0
    """Since when its session lived, or it began itself."""
    began: float = 0.0
    ended: float = 0.0
    outcome: str = ""
    wrong: str = ""
    """What was said that no server had said."""
    again: int = 0
    """How often it was told to come again (503)."""
    resumed: int = 0
    """How often its stream was taken up by the id of its last event."""
    refusals: list[str] = field(default_factory=list[str])
    """Answers of HTTP that were none, and of whom."""
    stopped: bool = False
    """Whether its client cancelled it while it ran."""
    back: float = 0.0
    """When its client first came back for its stream; 0: it did not."""

    @property
    def involved(self) -> set[str]:
        """The replicas that had to do with it; empty: nobody knows, since a connection that breaks off names none."""
        if self.outcome == UNANSWERED:
            return set()
        return self.asked | ({self.owner} if self.owner is not None else set())


@dataclass(frozen=True)
class Loss:
    """What happened to a replica, and from when to when."""

    replica: str
    how: Literal["kill", "drain", "cut"]
    began: float
    ended: float


@dataclass(frozen=True)
class Outage:
    """From when to when the store was away, from all replicas or from one that said so."""

    how: Literal["kept", "forgot", "frozen", "said"]
    """Killed, and there again with what it had or without; frozen; away for one replica, whatever it was."""
    began: float
    ended: float
    replica: str | None = None


@dataclass(frozen=True)
class Store:
    """What a store that replicas share must have kept of the answers that they left."""

    finished: Mapping[int, float]
    """When a server finished a call."""
    outages: Sequence[Outage]

    def fault(self, call: Call, events: Iterable[Loss]) -> str:
        """What must not be with a call whose client came back, and was told that its session is gone."""
        if not self._ends(call, events):
            return f"it was done and not given, and nothing had happened to {_named(call)}"
        return "" if self.excuse(call, events) else "its answer was in the store, and was not given"

    def excuse(self, call: Call, events: Iterable[Loss]) -> str:
        """Why the store need not have the answer of a call that was done; "" for no reason."""
        done = self.finished[call.number]
        if min(self._ends(call, events), default=done) < done + _WRITTEN:
            return "its replica was gone before it was written"
        if self._was_away(call, done, done + _WRITTEN):
            return "the store was away when it was to be written"
        if any(each.how == "forgot" and done <= each.ended and each.began <= call.ended for each in self.outages):
            return "the store came back empty"
        return "the store was away when it was asked for" if self._was_away(call, call.back, call.ended) else ""

    def _ends(self, call: Call, events: Iterable[Loss]) -> list[float]:
        # One that is asked to end writes what it has before it does.
        mine = [each for each in events if each.replica == call.owner and _met(call, each)]
        return [each.ended if each.how == "drain" else each.began for each in mine]

    def _was_away(self, call: Call, began: float, ended: float) -> bool:
        return any(
            each.began - _SLACK <= ended and began - _SLACK <= each.ended
            for each in self.outages
            if each.replica is None or each.replica in call.involved
        )


class Ledger:
    """All calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.strange: list[str] = []
        """What clients saw that should not be, beside the outcome of a call."""

    def faults(
        self, events: Iterable[Loss], counts: Mapping[int, tuple[int, int]], store: Store | None = None
    ) -> list[str]:
        """What must not be. `store`: which the replicas share."""
        happened = list(events)
        found = list(self.strange)
        for call in self.calls:
            begun, finished = counts.get(call.number, (0, 0))
            left = store is not None and _was_left(call, finished)
            why = store.fault(call, happened) if left else _fault(call, begun, finished, happened)
            if why:
                times = f"{call.began:.1f} to {call.ended:.1f}"
                told = ", ".join([times, call.outcome, *call.refusals])
                found.append(f"call {call.number} ({call.era}, {call.kind}, {told}): {why}")
        return found

    def left(self, events: Iterable[Loss], counts: Mapping[int, tuple[int, int]], store: Store) -> dict[str, int]:
        """What became of answers whose replica was gone when their client came back, to their number."""
        happened = list(events)
        found: Counter[str] = Counter()
        for call in self.calls:
            mine = [each for each in happened if each.replica == call.owner]
            if call.outcome == ANSWERED and any(call.began <= x.began and x.ended <= call.back for x in mine):
                found["given"] += 1
            elif _was_left(call, counts.get(call.number, (0, 0))[1]):
                found[store.excuse(call, happened) or "not given"] += 1
        return dict(found)

    def table(self, counts: Mapping[int, tuple[int, int]]) -> dict[str, dict[str, int]]:
        """Outcome to kind to number. A call that was not answered is told apart by whether it had run."""
        found: dict[str, Counter[str]] = {}
        for call in self.calls:
            ran = (
                "" if call.outcome in (ANSWERED, CANCELLED) else ", had run" if counts.get(call.number) else ", not run"
            )
            found.setdefault(f"{call.outcome}{ran}", Counter())[f"{call.era} {call.kind}"] += 1
        return {
            name: dict(sorted(found[name].items())) for name in sorted(found, key=lambda name: -found[name].total())
        }


def _was_left(call: Call, finished: int) -> bool:
    return bool(call.back) and call.outcome == SESSION_GONE and finished == 1


def _fault(call: Call, begun: int, finished: int, events: list[Loss]) -> str:
    if call.wrong:
        return f"a wrong answer: {call.wrong}"
    if begun > 1:
        return f"it was done {begun} times"
    if call.outcome == ANSWERED:
        if call.stopped and not _lost(call, events):
            return "it was cancelled in vain"
        return "" if finished == 1 else "it was answered and not done"
    if call.outcome == CANCELLED:
        return "" if finished == 0 or _lost(call, events) else "it was cancelled and done to its end"
    if begun and not _lost(call, events):
        return f"it was lost, and nothing had happened to {_named(call)}"
    if not begun and not _ended(call, events):
        return f"it was refused, and nothing had happened to {_named(call)}"
    return ""


def _named(call: Call) -> str:
    return " and ".join(sorted(call.involved)) or "any replica"


def _lost(call: Call, events: list[Loss]) -> bool:
    """Whether a replica that had to do with it was killed, or cut off, while it ran."""
    return any(
        each.how != "drain" and each.began - _SLACK <= call.ended and call.began <= each.ended + _SLACK
        for each in events
        if not call.involved or each.replica in call.involved
    )


def _ended(call: Call, events: list[Loss]) -> bool:
    """Whether a replica that had to do with it ended in any way, since its session began."""
    return any(_met(call, each) for each in events if not call.involved or each.replica in call.involved)


def _met(call: Call, event: Loss) -> bool:
    return call.since <= event.ended + _SLACK and event.began - _SLACK <= call.ended
