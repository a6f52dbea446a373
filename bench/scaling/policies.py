"""Which engine is asked: by the gateway's own homes, and by other policies.

A policy belongs to one gateway: it knows what that gateway has sent and nothing of its neighbours. `homes` calls
`gateway/engine/pool/engine_choice.py`, which the gateway runs. Among equally busy engines a draw decides. `prefix` is
what routers do that remember which prompts they have sent where.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, Protocol, overload

from bench.scaling.traces import Conversation
from gateway.engine.pool.engine_choice import WARM, Load, choose, order_of, warmth, with_room

Engines = Mapping[str, float]
"""The present engines, and when each joined."""


class Policy(Protocol):
    """How one gateway chooses."""

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """Return the engine to ask."""
        ...

    def ended(self, name: str) -> None:
        """Note that an answer of this gateway has ended."""
        ...


class _Counting:
    """Knows how many of its own requests each engine has."""

    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        self._running: dict[str, int] = {}

    def ended(self, name: str) -> None:
        """One less."""
        if name in self._running:
            self._running[name] -= 1

    def _sent(self, name: str) -> str:
        self._running[name] += 1
        return name

    def _fit(self, engines: Engines) -> bool:
        """Take note of the present engines; returns whether they have changed."""
        if self._running.keys() == engines.keys():
            return False
        self._running = {name: self._running.get(name, 0) for name in engines}
        return True

    def _least(self, among: Sequence[str] | None = None) -> str:
        """Return one of the least busy at random: the first after a place that is drawn."""
        names = list(self._running) if among is None else among
        at = self._random.randrange(len(names))
        return min([*names[at:], *names[:at]], key=self._running.__getitem__)


class _Order(Sequence[str]):
    """The order in which engines are a key's home, made when it is needed: a conversation that stays needs none."""

    def __init__(self, key: bytes, names: Mapping[str, Load]) -> None:
        self._key = key
        self._names = names
        self._order: list[str] | None = None

    def _made(self) -> list[str]:
        if self._order is None:
            self._order = order_of(self._key, self._names)
        return self._order

    def __iter__(self) -> Iterator[str]:
        return iter(self._made())

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._made()[index]


class Homes(_Counting):
    """The gateway's own policy: a conversation has a home, and leaves it when it is too busy."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._loads: dict[str, Load] = {}
        self._young: Mapping[str, float] = {}
        self._known: dict[int, str] = {}

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """Return the home, or the next in its order."""
        if self._fit(engines):
            self._loads = {name: self._load(name, now, came) for name, came in engines.items()}
            self._young = {name: came for name, came in engines.items() if now - came < WARM}
        for name in self._young:
            self._loads[name] = self._load(name, now, engines[name])
        left = with_room(self._loads)
        name = choose(_Order(conversation.key, left), left, self._known.get(conversation.number))
        self._known[conversation.number] = name
        return self._count(self._sent(name))

    def ended(self, name: str) -> None:
        """One less."""
        super().ended(name)
        if name in self._loads and name in self._running:
            self._count(name)

    def _count(self, name: str) -> str:
        self._loads[name] = Load(self._running[name], self._slots, self._loads[name].warmth)
        return name

    def _load(self, name: str, now: float, came: float) -> Load:
        return Load(self._running[name], self._slots, warmth(now - came))


class RoundRobin(_Counting):
    """One engine after the other."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._turn = random.randrange(1 << 20)
        self._names: list[str] = []

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """Return the engine whose turn it is."""
        if self._fit(engines):
            self._names = list(engines)
        self._turn += 1
        return self._sent(self._names[self._turn % len(self._names)])


class LeastLoad(_Counting):
    """The engine with the fewest of this gateway's requests."""

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """Return the least busy engine."""
        self._fit(engines)
        return self._sent(self._least())


class Sticky(_Counting):
    """The engine that has answered before; a new conversation goes to the least busy one."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._of: dict[int, str] = {}

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """Return the same engine as before, if it is there."""
        self._fit(engines)
        name = self._of.get(conversation.number)
        if name not in engines or name is None:
            name = self._of[conversation.number] = self._least()
        return self._sent(name)


class Prefix(_Counting):
    """The engine that was sent most of the prompt, unless it has over twice the mean to do."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._of: dict[int, str] = {}
        self._kinds: dict[int, dict[str, None]] = {}

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """Return the conversation's own engine, else the least busy of those that had one of its kind."""
        self._fit(engines)
        bound = max(2 * (sum(self._running.values()) + 1) / len(engines), self._slots)
        name = self._of.get(conversation.number)
        had = self._kinds.setdefault(conversation.kind, {})
        if name not in engines or name is None or self._running[name] >= bound:
            like = [each for each in had if each in engines and self._running[each] < bound]
            name = self._least(like or None)
        self._of[conversation.number], had[name] = name, None
        return self._sent(name)


POLICIES: Final[Mapping[str, Callable[[int, Random], Policy]]] = {
    "homes": Homes,
    "round robin": RoundRobin,
    "least load": LeastLoad,
    "sticky": Sticky,
    "prefix": Prefix,
}
