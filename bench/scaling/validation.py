"""The simulation compared with real engines: the same conversations, played and simulated, and how much they differ.

Turns what real engines counted and what the simulation says into rows. The costs are measured on the same machine right
before and right after, with as many engines at work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from statistics import median
from typing import Any, Final

from bench.scaling.calibration import calibrated, costs_of
from bench.scaling.costs import Costs
from bench.scaling.engine import Cache, Request, Size
from bench.scaling.policies import POLICIES
from bench.scaling.real import SMALL, Played, lived, play
from bench.scaling.simulation import Outcome, Scene, Simulation
from bench.scaling.traces import Conversation, Crowd, draw
from gateway.engine.pool.engine_choice import WARM

BAR: Final = 0.1
"""By how much reuse and processed ids may differ, in every row."""
_SEED: Final = 1
_AROUND: Final = (0.9, 0.93, 0.97, 1.0, 1.03, 1.07, 1.1)
"""Costs are not known more exactly than this; if requests coincide differently, other slots are given up."""
_ROOMY: Final = Size(slots=2, cache=1600, grain=1)
"""Conversations end with twice as many ids as there is room for."""
_TIGHT: Final = Size(slots=2, cache=800, grain=1)
"""With four times as many: the choice of what to give up decides most."""


@dataclass(frozen=True, slots=True)
class Case:
    """One setup that is both played and simulated."""

    engines: int
    size: Size
    policy: str = "homes"
    crowd: Crowd = SMALL
    """The conversations for each engine."""

    @property
    def name(self) -> str:
        """The case in words."""
        count = "1 engine" if self.engines == 1 else f"{self.engines} engines"
        return f"{count}, slot files of {self.size.cache:,} ids, {self.policy}"


CASES: Final = (
    *(Case(engines, size) for size in (_ROOMY, _TIGHT) for engines in (1, 2, 4)),
    Case(2, _ROOMY, "round robin"),
    *(Case(engines, _ROOMY, "sticky") for engines in (2, 4)),
)
SHORT: Final = Case(
    *(1, _ROOMY),
    crowd=replace(SMALL, conversations=2, seconds=1.0, turns=2, tool=(0.05, 0.2), person=(0.2, 0.4)),
)


async def validated(cases: Sequence[Case] = CASES) -> dict[str, Any]:
    """Return a row for each case, with what was counted, what is simulated, and the difference."""
    rows: dict[str, Any] = {}
    last: dict[int, dict[str, Any]] = {}
    for case in cases:
        before = last.get(case.engines) or await calibrated(case.engines, 1)
        crowd = replace(case.crowd, conversations=case.crowd.conversations * case.engines)
        talks = await play(draw(crowd, _SEED), case.engines, case.size, case.policy)
        after = last[case.engines] = await calibrated(case.engines, 1)
        played = lived(talks)
        rows[case.name] = compared(played, case, costs_of(before, after))
        print(case.name, rows[case.name], flush=True)
        rows[case.name]["played"] = [each.row() for each in played]
    return rows


def compared(played: Sequence[Played], case: Case, costs: Costs) -> dict[str, Any]:
    """Return what was counted, what is simulated, and the difference."""
    real, timed, free = counted(played), in_its_order(played, case, costs), on_its_own(played, case, costs)
    differ = {name: round(timed[name] / real[name] - 1, 4) for name in ("found_again", "processed")}
    return {"real": real, "in_order": timed, "differ": differ, "on_its_own": free, "costs": asdict(costs)}


def counted(played: Sequence[Played]) -> dict[str, Any]:
    """Return what real engines counted."""
    asked = [each for one in played for each in one.asked]
    held = sum(each.held for each in asked)
    return {
        "answers": len(asked),
        "held": held,
        "found_again": round(sum(min(each.reused, each.held) for each in asked) / held, 4) if held else None,
        "processed": sum(each.processed for each in asked),
        "first_s": round(median(each.first_s for each in asked), 4),
    }


def in_its_order(played: Sequence[Played], case: Case, costs: Costs) -> dict[str, Any]:
    """Simulate requests that arrive and end when they really did: homes, slots and files, but not speed."""
    caches = {f"engine-{number}": Cache(case.size, costs) for number in range(case.engines)}
    policy, outcome = POLICIES[case.policy](case.size.slots, Random(case.policy)), Outcome()
    came = dict.fromkeys(caches, -WARM)
    made: dict[tuple[int, int], Request] = {}
    late: list[Request] = []
    for time, what, talk, turn in _events(played):
        if what == "come":
            request = made[talk.number, turn] = Request.of(talk, turn, time)
            request.engine = policy.choose(talk, came, time)
            caches[request.engine].come(request)
        else:
            request = made[talk.number, turn]
            policy.ended(request.engine)
            late.append(request)
            for over in _over(caches[request.engine], late):
                outcome.note(over)
    return {"found_again": outcome.found_again, "processed": outcome.processed}


def _over(cache: Cache, late: list[Request]) -> Iterator[Request]:
    """Yield those of an engine that have really been answered and have a slot by now: each frees it for the next."""
    while request := next((each for each in late if each.slot is not None), None):
        late.remove(request)
        cache.end(request)
        yield request


def _events(played: Sequence[Played]) -> list[tuple[float, str, Conversation, int]]:
    found = [
        (time, what, one.conversation, turn)
        for one in played
        for turn, asked in enumerate(one.asked)
        for what, time in (("come", asked.placed), ("end", asked.ended))
    ]
    return sorted(found, key=lambda each: each[0])


def on_its_own(played: Sequence[Played], case: Case, costs: Costs) -> dict[str, Any]:
    """Simulate from only the conversations and the costs; the range is that of costs 10 % off."""
    talks = [one.conversation for one in played]
    outcomes = [
        Simulation(Scene(case.engines, size=case.size), case.policy, talks, costs.times(part), _SEED).run()
        for part in _AROUND
    ]
    whole, processed = outcomes[_AROUND.index(1.0)], sorted(each.processed for each in outcomes)
    return {
        "found_again": whole.found_again,
        "processed": whole.processed,
        "processed_range": [processed[0], processed[-1]],
        "first_s": round(median(whole.firsts), 4),
    }
