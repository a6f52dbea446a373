"""Who is asked: the gateway's own homes, and what others do.

A policy is one gateway's: it knows what it has sent itself and nothing of its neighbours. `homes` calls
`gateway/engine/homes.py`, which the gateway runs. Of engines that are equally busy a draw decides. `prefix` asks every
engine for what it holds, which no router can do that is not told by all engines at every moment: it is a bound.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Protocol

from bench.fleet.engine import Engine
from bench.fleet.traces import Conversation
from gateway.engine.homes import Load, choose, key_of, order_of


class Policy(Protocol):
    """How one gateway chooses."""

    def choose(self, conversation: Conversation, engines: Mapping[str, Engine]) -> str:
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
        self._loads: dict[str, Load] = {}

    def ended(self, name: str) -> None:
        """One less."""
        if (load := self._loads.get(name)) is not None:
            self._loads[name] = Load(max(0, load.running - 1), self._slots)

    def _sent(self, name: str) -> str:
        self._loads[name] = Load(self._loads[name].running + 1, self._slots)
        return name

    def _fit(self, engines: Mapping[str, Engine]) -> None:
        """Know the engines that there are."""
        if self._loads.keys() != engines.keys():
            self._loads = {name: self._loads.get(name, Load(0, self._slots)) for name in engines}

    def _least(self) -> str:
        least = min(load.running for load in self._loads.values())
        return self._random.choice([name for name, load in self._loads.items() if load.running == least])


class Homes(_Counting):
    """The gateway's: a conversation has a home, which is left where it is too busy."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._orders: dict[int, list[str]] = {}
        self._known: dict[int, str] = {}

    def choose(self, conversation: Conversation, engines: Mapping[str, Engine]) -> str:
        """The home, or the next of its order."""
        if self._loads.keys() != engines.keys():
            self._orders.clear()
        self._fit(engines)
        order = self._orders.get(conversation.number)
        if order is None:
            order = order_of(key_of("principal", conversation.number, conversation.kind), engines)
            self._orders[conversation.number] = order
        name = choose(order, self._loads, self._known.get(conversation.number))
        self._known[conversation.number] = name
        return self._sent(name)


class RoundRobin(_Counting):
    """The next one."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._turn = random.randrange(1 << 20)

    def choose(self, conversation: Conversation, engines: Mapping[str, Engine]) -> str:
        """Whose turn it is."""
        self._fit(engines)
        self._turn += 1
        names = list(engines)
        return self._sent(names[self._turn % len(names)])


class LeastLoad(_Counting):
    """The one that has least of this gateway's requests."""

    def choose(self, conversation: Conversation, engines: Mapping[str, Engine]) -> str:
        """The least busy."""
        self._fit(engines)
        return self._sent(self._least())


class Sticky(_Counting):
    """The one that has answered before; a new conversation goes where least is to do."""

    def __init__(self, slots: int, random: Random) -> None:
        super().__init__(slots, random)
        self._of: dict[int, str] = {}

    def choose(self, conversation: Conversation, engines: Mapping[str, Engine]) -> str:
        """The same as before."""
        self._fit(engines)
        name = self._of.get(conversation.number)
        if name not in engines or name is None:
            name = self._of[conversation.number] = self._least()
        return self._sent(name)


class Prefix(_Counting):
    """The one that holds most of the prompt, unless it has over twice the mean to do."""

    def choose(self, conversation: Conversation, engines: Mapping[str, Engine]) -> str:
        """The one with the longest beginning; of several the least busy."""
        self._fit(engines)
        mean = (sum(load.running for load in self._loads.values()) + 1) / len(engines)
        bound = max(2 * mean, self._slots)
        free = [name for name in engines if self._loads[name].running < bound] or list(engines)
        best = max((engines[name].holds(conversation), -self._loads[name].running) for name in free)
        found = [name for name in free if (engines[name].holds(conversation), -self._loads[name].running) == best]
        return self._sent(self._random.choice(found))


POLICIES: Final[Mapping[str, Callable[[int, Random], Policy]]] = {
    "homes": Homes,
    "round robin": RoundRobin,
    "least load": LeastLoad,
    "sticky": Sticky,
    "prefix": Prefix,
}
