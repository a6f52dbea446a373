"""Several engines as one: which of them answers a conversation, and which continues it when its engine is lost.

Turns routes, each of which starts, proves and watches its own engine (`start/readiness.py`), into one place that the
agent and the endpoints ask. Engines with the same model, map and template are interchangeable; `engine_choice.py`
decides which of them a conversation gets. A stay turns questions to an engine into its answers, or those of a
replacement. In a pool of one nothing is counted, chosen or moved. It does not generate.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple, Protocol, TypeVar

from gateway.breaker import Admission
from gateway.engine.pool.engine_choice import (
    WARM,
    EngineState,
    Load,
    Member,
    MemberStatus,
    MovesOfAnswer,
    RetryBudget,
    Route,
    choose,
    closed,
    kind_of,
    order_of,
    state_of,
    status_of,
    unknown,
    wanted,
    warmth,
    with_room,
)
from gateway.engine.rendering.template_forms import ToolFault
from gateway.engine.start.maps import MapSet
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineBusy, EngineError, EngineRefused, EngineUnavailable, MapDiffers
from gateway.observe.logs import get_logger

T = TypeVar("T")
Clock = Callable[[], float]

log = get_logger("engine.pool")


class PoolMetrics(Protocol):
    """Counts answers in a pool."""

    def engine_running(self, engine: str, answers: int) -> None:
        """This many answers are being made with an engine now."""
        ...

    def answer_moved(self, engine: str, *, begun: bool) -> None:
        """An answer was moved away from a lost engine. `begun`: whether it already had ids."""
        ...


class _Choice(NamedTuple):
    """An engine for an answer."""

    member: Member
    ready: ReadyEngine
    admission: Admission | None
    """Its breaker's; None: every breaker is open, and this engine is asked all the same."""


class Stay:
    """Where one answer is made: the only engine that there is."""

    may_move = False
    """Whether another engine may take over."""

    def __init__(self, ready: ReadyEngine, route: Route | None = None) -> None:
        """`route`: told when the engine fails."""
        self.ready = ready
        """The engine that makes the answer now."""
        self._route = route

    async def wait(self, answer: Awaitable[T]) -> T:
        """Wait for the engine. Raises `EngineUnavailable` if it is lost in the meantime and another may take over."""
        return await answer

    async def turn(self, place: Awaitable[T]) -> T:
        """Wait for a slot of the engine. An engine that is lost in the meantime was not lost because of this answer."""
        return await place

    def each(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """The events of the engine. Each is waited for like `wait`."""
        return events

    async def ask(self, question: Callable[[ReadyEngine], Awaitable[T]]) -> T:
        """Ask the engine something that could be asked of any other. Raises `EngineError` if none answers."""
        while True:
            try:
                return await self.wait(question(self.ready))
            except EngineError as error:
                self.lost(error)
                if not is_loss(error):
                    raise
                self.move(error)

    def answered(self) -> None:
        """Note that the engine has generated an id."""

    def lost(self, error: EngineError) -> None:
        """Note that the engine has failed; its route finds out whether it is gone."""
        if self._route is not None and isinstance(error, EngineUnavailable) and not isinstance(error, EngineBusy):
            self._route.report_loss()

    def move(self, error: EngineError) -> None:
        """Move from a lost engine to another. Raises `error` if there is none, or too much has moved already."""
        raise error


def is_loss(error: EngineError) -> bool:
    """Whether another engine may succeed: this one is down, was replaced by another server, or answers nonsense."""
    return isinstance(error, EngineUnavailable | MapDiffers) or (
        isinstance(error, EngineRefused) and error.status >= 500 and error.status != 501
    )


class MovingStay(Stay):
    """A stay that may move to another engine of the pool."""

    may_move = True

    def __init__(self, pool: "EnginePool", chosen: _Choice, like: ReadyEngine, home: bytes) -> None:
        super().__init__(_with_options_of(chosen.ready, like), chosen.member.route)
        self._pool = pool
        self._member, _, self._admission = chosen
        self._home = home
        self._moves = MovesOfAnswer()
        self._left: set[int] = set()
        """The starts of the engines that it has lost, by their numbers."""
        self._begun = False
        self._queued = False
        """Whether it waits for a slot, and nothing of it has reached the engine."""
        pool.runs(self._member, 1)

    async def wait(self, answer: Awaitable[T]) -> T:
        """See `Stay.wait`; raises `EngineUnavailable` as soon as the engine is lost."""
        return await self.ready.life.wait(answer)

    async def turn(self, place: Awaitable[T]) -> T:
        """See `Stay.turn`; raises `EngineUnavailable` as soon as the engine is lost."""
        self._queued = True
        taken = await self.ready.life.wait(place)
        self._queued = False
        return taken

    def each(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """See `Stay.each`; raises `EngineUnavailable` as soon as the engine is lost."""
        return self.ready.life.each(events)

    def answered(self) -> None:
        """Note that the engine has generated an id, so that the answer may move again if this engine is lost too."""
        self._begun = True
        self._moves.went_on()
        self._member.breaker.succeeded(self._admission)

    def lost(self, error: EngineError) -> None:
        """Note that the engine has failed; if it fails too often, it gets no answers for a while."""
        super().lost(error)
        if is_loss(error) and not isinstance(error, EngineBusy):
            self._member.breaker.failed(self._admission, self._pool.now())

    def move(self, error: EngineError) -> None:
        """Move from a lost engine to another. Raises `EngineUnavailable` if there is none, or the budget is spent."""
        pool, left = self._pool, self._member
        self._left.add(self.ready.number)
        found = pool.another(self.ready, self._home, self._left)
        # An answer that only waited has cost no engine anything.
        free, self._queued = self._queued, False
        if found is None or not (free or (self._moves.may_move() and pool.budget.take())):
            if isinstance(error, EngineUnavailable):
                raise error
            # What is wrong with this engine is no answer to a request that any of them could have served.
            raise EngineUnavailable(f"no engine is left that can answer: {error.message}") from error
        pool.metrics().answer_moved(left.name, begun=self._begun)
        log.warning("an answer continues on another engine", left=left.name, to=found.member.name, reason=error.message)
        self._leave()
        self._member, _, self._admission = found
        self._route = found.member.route
        pool.runs(self._member, 1)
        self.ready = _with_options_of(found.ready, self.ready)

    def ended(self) -> None:
        """Note that the answer is over."""
        self._leave()
        self._pool.budget.answered()

    def _leave(self) -> None:
        self._pool.runs(self._member, -1)
        self._member.breaker.inconclusive(self._admission)


class EnginePool:
    """The engines of one gateway."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        maps: MapSet | None = None,
        metrics: Callable[[], PoolMetrics] | None = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
        now: Clock = monotonic,
    ) -> None:
        """Start nothing.

        Args:
            routes: the routes by the engines' names, which determine the order of homes; at least one.
            maps: the maps of all engines.
            metrics: returns what counts; called when something is to be counted.
            aliases: other names by which clients may ask for an engine's model, by the engines' names.
            now: a clock.
        """
        named = aliases or {}
        self._members = [Member(name, route, tuple(named.get(name, ()))) for name, route in routes.items()]
        self.maps = maps or MapSet()
        self.metrics = metrics or _Uncounted
        self.now = now
        self.budget = RetryBudget()
        self._asked = False
        """Whether an answer was ever asked for."""
        self.several = len(self._members) > 1

    @property
    def is_open(self) -> bool:
        """Whether any engine is up and its map is proven."""
        return bool(self._open())

    def state(self) -> tuple[EngineState, str]:
        """Whether there is an engine to be used, and if not, the reason."""
        try:
            self.ready()
        except EngineError as error:
            return state_of(error), error.message
        return state_of(None), ""

    def ready(self, model: str | None = None) -> ReadyEngine:
        """The first running engine that serves a model; None: any model. Raises `EngineError`, and `ModelUnknown`."""
        if not self.several:
            return self._members[0].route.ready()
        return self._serving(model)[0][1]

    def named(self, model: str) -> ReadyEngine:
        """An engine that serves exactly the named model. Raises like `ready`."""
        ready = self.ready(model)
        if model != ready.facts.model and all(model not in member.aliases for member in self._members):
            # This makes each member note what its engine serves now.
            self._open()
            raise unknown(self._members, model)
        return ready

    def models(self) -> list[ReadyEngine]:
        """The first engine of each model that is served now. Raises `EngineError` if there is none."""
        if not self.several:
            return [self._members[0].route.ready()]
        if not (found := self._open()):
            raise closed(self._members)
        first = {ready.facts.model: ready for _, ready in reversed(found)}
        return [ready for _, ready in found if first.get(ready.facts.model) is ready]

    def statuses(self) -> list[MemberStatus]:
        """The state of each engine."""
        opened = {member.name: ready for member, ready in self._open()}
        return [status_of(member, opened.get(member.name), self.now()) for member in self._members]

    def tool_faults(self) -> list[tuple[str, ToolFault]]:
        """What is wrong with tools, by the engines that are up."""
        return [(member.name, fault) for member, ready in self._open() for fault in ready.forms.reported]

    async def open(self, first: ReadyEngine, home: bytes, make: Callable[[ReadyEngine], Awaitable[T]]) -> T:
        """Call `make` with an engine like `first`, preferably the home of a key; if it is lost, with the next one.

        Raises `EngineError` when the last has failed, and what `make` raises.
        """
        if not self.several:
            return await make(first)
        with self.stay(first, home, moves=False) as stay:
            return await stay.ask(make)

    @contextmanager
    def stay(self, ready: ReadyEngine, home: bytes, known: int | None = None, *, moves: bool = True) -> Generator[Stay]:
        """An engine like `ready` for one answer.

        Args:
            ready: the engine with which the prompt was made, which may be lost by now.
            home: the key of the conversation's home.
            known: the start of an engine that holds the conversation, if one does.
            moves: whether a busy home passes it on to the next.
        """
        if not self.several:
            yield Stay(ready, self._members[0].route)
            return
        chosen = self._chosen(ready, home, known, bounded=moves)
        self._asked = True
        stay = MovingStay(self, chosen, ready, home)
        try:
            yield stay
        finally:
            stay.ended()

    def runs(self, member: Member, more: int) -> None:
        """Count answers that begin (1) or end (-1) at a member."""
        self.metrics().engine_running(member.name, member.runs(more))

    def another(self, ready: ReadyEngine, home: bytes, left: set[int]) -> _Choice | None:
        """An engine to replace a lost one; None if there is none."""
        found = [each for each in self._like(ready) if each[1].number not in left]
        return self._choose(found, home, None, bounded=True) if found else None

    def _chosen(self, ready: ReadyEngine, home: bytes, known: int | None, *, bounded: bool) -> _Choice:
        found = self._like(ready)
        if not found:
            raise closed(self._members)
        return self._choose(found, home, known, bounded=bounded)

    def _choose(
        self, found: Sequence[tuple[Member, ReadyEngine]], home: bytes, known: int | None, *, bounded: bool
    ) -> _Choice:
        now = self.now()
        by_name = {member.name: (member, ready) for member, ready in found}
        holding = next((member.name for member, ready in found if ready.number == known), None)
        loads = {
            member.name: Load(member.running, ready.facts.slots, warmth(now - member.since)) for member, ready in found
        }
        left = dict(with_room(loads))
        while left:
            order = order_of(home, left)
            name = choose(order, left, holding) if bounded else order[0]
            member, ready = by_name[name]
            if (admission := member.breaker.admit(now)) is not None:
                return _Choice(member, ready, admission)
            left.pop(name)
        # Every breaker is open: an engine that has failed is better than none.
        return _Choice(*by_name[order_of(home, by_name)[0]], None)

    def _like(self, ready: ReadyEngine) -> list[tuple[Member, ReadyEngine]]:
        """The running engines that can replace an engine."""
        return [
            (member, each)
            for member, each in self._open()
            if kind_of(each) == kind_of(ready) and each.facts.context >= ready.facts.context
        ]

    def _open(self) -> list[tuple[Member, ReadyEngine]]:
        found: list[tuple[Member, ReadyEngine]] = []
        for member in self._members:
            try:
                ready = member.route.ready()
            except EngineError:
                continue
            # Until something has been asked of the pool, all count as warm: none is newer than the others.
            member.seen(ready, self.now() - (0 if self._asked else WARM))
            found.append((member, ready))
        return found

    def _serving(self, model: str | None) -> list[tuple[Member, ReadyEngine]]:
        """The running engines that serve a model, at least one."""
        opened = self._open()
        names = wanted(self._members, model)
        found = [(member, ready) for member, ready in opened if member.name in names]
        if not found:
            raise closed([member for member in self._members if member.name in names])
        return found


def _with_options_of(chosen: ReadyEngine, ready: ReadyEngine) -> ReadyEngine:
    """The chosen engine, with the options of the other engine's template."""
    if chosen.number == ready.number:
        return ready
    return chosen.with_options(ready.template.options) if ready.template.options else chosen


class _Uncounted:
    """Counts nothing."""

    def engine_running(self, engine: str, answers: int) -> None:
        """Do nothing."""

    def answer_moved(self, engine: str, *, begun: bool) -> None:
        """Do nothing."""
