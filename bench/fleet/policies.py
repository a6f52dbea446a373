"""Who is asked: the gateway's own homes, and what others do.

A policy is one gateway's: it knows what it has sent itself and nothing of its neighbours. `homes` calls
`gateway/engine/homes.py`, which the gateway runs. Of engines that are equally busy a draw decides. `prefix` is what
routers do that remember which prompts they have sent where.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, Protocol, overload

from bench.fleet.traces import Conversation
from gateway.engine.homes import WARM, Load, choose, order_of, warmth, with_room

Engines = Mapping[str, float]
"""The engines that there are, and when each came."""


class Policy(Protocol):
    """How one gateway chooses."""

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """The engine that is asked."""
        ...

    def ended(self, name: str) -> None:
        """An answer of this gateway's is over."""
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
        """Know the engines that there are; whether they are others than before."""
        if self._running.keys() == engines.keys():
            return False
        self._running = {name: self._running.get(name, 0) for name in engines}
        return True

    def _least(self, among: Sequence[str] | None = None) -> str:
        """Of those that have least to do one by chance: the first behind a place that is drawn."""
        names = list(self._running) if among is None else among
        at = self._random.randrange(len(names))
        return min([*names[at:], *names[:at]], key=self._running.__getitem__)


class _Order(Sequence[str]):
    """The order in which engines are a key's home, made when it is asked for: who stays where it is needs none."""

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
    """The gateway's: a conversation has a home, which is left where it is too busy."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._loads: dict[str, Load] = {}
        self._young: Mapping[str, float] = {}
        self._known: dict[int, str] = {}

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """The home, or the next of its order."""
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
    """The next one."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._turn = random.randrange(1 << 20)
        self._names: list[str] = []

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """Whose turn it is."""
        if self._fit(engines):
            self._names = list(engines)
        self._turn += 1
        return self._sent(self._names[self._turn % len(self._names)])


class LeastLoad(_Counting):
    """The one that has least of this gateway's requests."""

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """The least busy."""
        self._fit(engines)
        return self._sent(self._least())


class Sticky(_Counting):
    """The one that has answered before; a new conversation goes where least is to do."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._of: dict[int, str] = {}

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """The same as before."""
        self._fit(engines)
        name = self._of.get(conversation.number)
        if name not in engines or name is None:
            name = self._of[conversation.number] = self._least()
        return self._sent(name)


class Prefix(_Counting):
    """The one that was sent most of the prompt, unless it has over twice the mean to do."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._of: dict[int, str] = {}
        self._kinds: dict[int, dict[str, None]] = {}

    def choose(self, conversation: Conversation, engines: Engines, now: float) -> str:
        """The conversation's own before those that had one of its kind; of these the least busy."""
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
