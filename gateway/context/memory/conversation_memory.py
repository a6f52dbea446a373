"""Conversations as the model lived them, found again by what their clients send.

A tree with a node for each answer: what the client was shown, what the model lived (turns with their ids, results of
calls that the gateway ran), and the ids that the engine held at its end, stored as what they add to the node before.
Answers never change: two requests may continue from one. Bounded in bytes; the least recently used answer of the
principal that has the most is dropped first. It renders nothing and never waits.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain, islice
from math import inf
from sys import getsizeof
from typing import Any, Final

from gateway.context.memory.message_digests import History, ordered_results, retold, root_digest
from gateway.context.memory.remembered import Lived, Remembered
from gateway.engine.interface import Message

_ALIKE: Final = 8
"""Most answers remembered under one digest: the same text again, or calls with other arguments."""
_FORGOTTEN: Final = 4096
"""How many dropped answers it knows to have remembered once."""
_NODE_BYTES: Final = 1200
"""Bytes that a node takes besides its ids and texts, measured."""
_RESULT_BYTES: Final = 800
"""Bytes that it takes to know of a kept result; its ids have a bound of their own."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """The conversation that a request continues."""

    last: Remembered
    lived: tuple["Turn", ...]
    """The conversation as the model lived it, up to its last turn that is remembered."""
    new: tuple["Turn", ...]
    """What comes after: results of calls, including calls that the gateway ran, and the client's messages."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message, and how the model lived it if that is remembered."""

    message: Message
    lived: Lived | None = None


class ConversationMemory:
    """The answers of one gateway."""

    def __init__(self, most: int, share: float = 1.0) -> None:
        """`most`: bytes in all. `share`: the fraction that one principal may fill, once there are several."""
        self._most = most
        self._share = int(most * share)
        self._found: dict[bytes, list[Remembered]] = {}
        """By digest, the newest first."""
        self._summed_up: dict[bytes, Remembered] = {}
        """By digest of the summary, the answer up to which it stands for the conversation."""
        self._last: defaultdict[str, OrderedDict[int, Remembered]] = defaultdict(OrderedDict)
        """By owner, the answers that nothing follows; the least recently used first."""
        self._sizes: Counter[str] = Counter()
        self._forgotten: OrderedDict[bytes, bool] = OrderedDict()
        """Digests of dropped answers, and whether results of calls that the gateway ran were lost with each."""
        self.changes = 0
        """How often an answer was added, dropped or used."""

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._sizes.total()

    def recall(
        self,
        owner: str,
        history: History,
        schemas: Mapping[str, Mapping[str, Any]],
        lacks: Callable[[Remembered], tuple[int, int]] = lambda node: (0, 0),
    ) -> Recalled | None:
        """The longest remembered conversation that the history continues; None where nothing of it is remembered.

        Of several alike, the one that `lacks` the least, or else the newest.
        """
        echoed: dict[int, bool] = {}
        for place, digest in reversed(history.answers):
            alike = self._found.get(digest, ())
            same = [each for each in alike if each.owner == owner and each.place == place]
            if found := [each for each in same if _is_echoed(each, history, schemas, echoed)]:
                node = min(found, key=lacks) if len(found) > 1 else found[0]
                self._touch(node)
                return recalled(node, history.messages)
        return None

    def forgotten(self, history: History) -> bool | None:
        """Whether results of calls that the gateway ran were lost with dropped answers; None where none was dropped."""
        found = [self._forgotten[digest] for _, digest in history.answers if digest in self._forgotten]
        return any(found) if found else None

    def same(self, digest: bytes, answer_id: str) -> Remembered | None:
        """The remembered answer with this id; None where it is not remembered."""
        return next((each for each in self._found.get(digest, ()) if each.answer_id == answer_id), None)

    def sum_up(self, node: Remembered, text: str) -> None:
        """Note that a text stands for the conversation up to an answer."""
        node.summary = _summary_digest(node.owner, text)
        self._summed_up[node.summary] = node

    def summed_up(self, owner: str, text: str) -> Remembered | None:
        """The answer up to which a text stands for its conversation; None where none is remembered."""
        node = self._summed_up.get(_summary_digest(owner, text))
        if node is not None:
            self._touch(node)
        return node

    def conversations(self, most: int) -> list[Remembered]:
        """Answers that nothing follows, the latest first: at most `most`, chosen from those that were used last."""
        last = chain.from_iterable(islice(reversed(nodes.values()), most) for nodes in self._last.values())
        return nlargest(most, last, key=lambda node: -inf if node.made is None else node.made)

    def branches(self, number: int) -> list[Remembered]:
        """Answers of one conversation that nothing follows, the latest first."""
        found = (node for nodes in self._last.values() for node in reversed(nodes.values()) if node.number == number)
        return sorted(found, key=lambda node: -inf if node.made is None else node.made, reverse=True)

    def remember(self, node: Remembered, digest: bytes) -> Remembered:
        """Keep an answer, and return it. `digest`: of its history and itself (`History.with_answer`)."""
        node.digest = digest
        node.size = _NODE_BYTES + len(node.added) * node.added.itemsize + sum(each.size for each in node.lived)
        node.size += getsizeof(node.shown.content) + getsizeof(node.shown.reasoning)
        # The definitions before it are the same objects.
        node.size += node.tools.size - (0 if node.before is None else node.before.tools.size)
        node.size += (
            len(set(node.results).difference(() if node.before is None else node.before.results)) * _RESULT_BYTES
        )
        node.size += 0 if node.record is None else node.record.size
        # Answers before it may have been dropped while it was made: they are added again, so that they are counted.
        missing: list[Remembered] = []
        each: Remembered | None = node
        while each is not None and each not in self._found.get(each.digest, ()):
            missing.append(each)
            each = each.before
        for each in reversed(missing):
            self._add(each)
        alike = self._found[digest]
        for old in [each for each in alike[_ALIKE:] if not each.followers]:
            self._drop(old)
        self._make_room(node.owner)
        return node

    def forget_records(self) -> None:
        """Forget how answers were made; keep the answers."""
        self.changes += 1
        for node in chain.from_iterable(self._found.values()):
            if node.record is not None:
                node.size -= node.record.size
                self._sizes[node.owner] -= node.record.size
                node.record = None

    def _add(self, node: Remembered) -> None:
        self.changes += 1
        self._found.setdefault(node.digest, []).insert(0, node)
        self._sizes[node.owner] += node.size
        if node.summary:
            self._summed_up[node.summary] = node
        if node.before is not None:
            node.before.followers += 1
            self._last[node.owner].pop(id(node.before), None)
        self._last[node.owner][id(node)] = node

    def _make_room(self, owner: str) -> None:
        several = len(self._sizes) > 1
        while several and self._sizes[owner] > self._share:
            self._drop_oldest(owner)
        while self._sizes.total() > self._most:
            self._drop_oldest(max(self._sizes, key=lambda name: self._sizes[name]))

    def _drop_oldest(self, owner: str) -> None:
        node = next(iter(self._last[owner].values()))
        self._forgotten[node.digest] = any(each.turn is None for each in node.lived)
        if len(self._forgotten) > _FORGOTTEN:
            self._forgotten.popitem(last=False)
        self._drop(node)

    def _drop(self, node: Remembered) -> None:
        """Drop an answer that nothing follows."""
        self.changes += 1
        leaves = self._last[node.owner]
        del leaves[id(node)]
        alike = self._found[node.digest]
        alike.remove(node)
        if not alike:
            del self._found[node.digest]
        if self._summed_up.get(node.summary) is node:
            del self._summed_up[node.summary]
        if (before := node.before) is not None:
            before.followers -= 1
            if not before.followers:
                leaves[id(before)] = before
                # It counts as used when the answer that followed it was used last.
                leaves.move_to_end(id(before), last=False)
        self._sizes[node.owner] -= node.size
        if not self._sizes[node.owner]:
            del self._sizes[node.owner], self._last[node.owner]

    def _touch(self, node: Remembered) -> None:
        self.changes += 1
        leaves = self._last[node.owner]
        if id(node) in leaves:
            leaves.move_to_end(id(node))


def _summary_digest(owner: str, text: str) -> bytes:
    return root_digest(b"", owner, text)


def _is_echoed(
    node: Remembered, history: History, schemas: Mapping[str, Mapping[str, Any]], echoed: dict[int, bool]
) -> bool:
    """Whether the client sends back this answer and those before it. `echoed`: what is already known of some."""
    unknown: list[Remembered] = []
    each: Remembered | None = node
    while each is not None and id(each) not in echoed:
        unknown.append(each)
        each = each.before
    same = each is None or echoed[id(each)]
    for each in reversed(unknown):
        start = each.before.place + 1 if each.before is not None else 0
        same = same and history.strangers(start, each.place) == each.strangers
        same = same and each.shown.is_echoed_by(history.shown[each.place], schemas)
        echoed[id(each)] = same
    return same


def recalled(node: Remembered, messages: Sequence[Message]) -> Recalled:
    """What continues an answer. `messages`: the client's, among them this answer and those before it."""
    answers = {each.place: each for each in node.chain()}
    found: list[Turn] = []
    ran: set[str] = set()
    new = 0
    for place, message in enumerate(messages):
        if place not in answers:
            if str(message.get("tool_call_id")) not in ran or message["role"] != "tool":
                found += map(Turn, retold(message))
            continue
        for lived in answers[place].lived:
            found.append(Turn(lived.message, lived))
            if lived.turn is not None:
                new = len(found)
            else:
                ran.add(str(lived.message["tool_call_id"]))
    ordered = ordered_results(found, lambda turn: turn.message)
    return Recalled(node, tuple(ordered[:new]), tuple(ordered[new:]))
