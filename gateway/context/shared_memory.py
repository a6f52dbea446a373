"""Conversations that other replicas remember: written to the shared store, and read where this replica knows less.

Turns an answer that is kept here into a record, written once the answer is complete, and a history that goes further
than what is remembered here into the missing answers, with one query. What comes back is accepted only where every
answer stands in the history at its place.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from gateway.config import LimitsConfig
from gateway.context.memory import ConversationMemory, History, Remembered
from gateway.context.memory.serialization import deserialize, serialize
from gateway.shared import Shared, StoreBounds, StoreRecord

_LAST: Final = 64
"""How many of a history's last answers are looked up."""


class SharedMemory:
    """What all replicas remember."""

    def __init__(self, shared: Shared, keys: Sequence[bytes], limits: LimitsConfig, ttl: float) -> None:
        """`keys`: for the digests, the current one first; `ttl`: seconds for which an unused record is kept."""
        self.keys: Final = keys
        self._shared = shared
        self._bounds = StoreBounds.of(limits.memory_bytes, limits.principal_share, ttl)
        self._process = secrets.token_bytes(8)

    def keep(self, node: Remembered) -> Awaitable[object]:
        """Write an answer that is remembered here to the store. Returns what can be awaited until that is done."""
        return self._shared.keep("memory", node.owner, self._record(node), self._bounds, partial(self._before, node))

    async def recall(
        self,
        memory: ConversationMemory,
        owner: str,
        histories: Sequence[History],
        behind: int,
        number: Callable[[], int],
    ) -> bool:
        """Add the missing answers of a conversation to a memory. Returns whether any were found.

        Args:
            memory: where they are added.
            owner: the principal whose conversation it is.
            histories: the same history under each key.
            behind: the place of the last answer that is remembered here; -1: none is.
            number: returns the number for a conversation that is new here.
        """
        places = [place for place, _ in reversed(histories[0].answers) if place > behind][:_LAST]
        digests = [dict(each.answers) for each in histories]
        aliases = [by_place[place].hex() for place in places for by_place in digests]
        if not aliases:
            return False
        before: Remembered | None = None
        for record in await self._shared.find_alias("memory", owner, aliases, self._bounds):
            mine = number() if before is None else before.number
            node = deserialize(record.value, owner, record.id, before, mine, self._process)
            if not any(by_place.get(node.place) == node.digest for by_place in digests):
                return False
            digest = digests[0][node.place]
            before = memory.same(digest, record.id) or memory.remember(node, digest)
        return before is not None

    def _record(self, node: Remembered) -> StoreRecord:
        before = None if node.before is None else node.before.answer_id
        return StoreRecord(node.answer_id, before, serialize(node, self._process), (node.digest.hex(),))

    def _before(self, node: Remembered) -> list[StoreRecord]:
        return [self._record(each) for each in node.chain()[:-1]]
