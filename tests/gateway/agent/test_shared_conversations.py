"""Answers that replicas remember for each other: the same when they come back, and nobody else's."""

import sys
from array import array
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import LimitsConfig
from gateway.context.memory import Call, ConversationMemory, History, Lived, LivedTurn, Remembered, Shown, root_digest
from gateway.context.memory.defined_tools import BEGINNING, DefinedTool, DefinedTools
from gateway.context.memory.remembered import NO_ENGINE
from gateway.context.shared_conversations import SharedMemory, deserialize, serialize
from gateway.observe.trajectories import Span
from gateway.shared import StoreRecord
from gateway.toolcalls.stream.output_events import CallClosed
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import SECRET, Direct, shared_in_memory

pytestmark = pytest.mark.anyio

OLD = b"o" * 32
TEXT = st.text(st.characters(), max_size=20)
IDS = st.lists(st.integers(0, 2**32 - 1), max_size=20).map(lambda ids: array("I", ids))
TURN = st.builds(
    LivedTurn,
    calls=st.lists(st.builds(CallClosed, st.integers(0, 3), TEXT, TEXT, TEXT, st.just(())), max_size=2).map(tuple),
    content=st.booleans(),
    reasoning=st.booleans(),
    ended_by=st.none() | st.integers(0, 2**32 - 1),
    broken=st.booleans(),
    form=TEXT,
)
SPANS = st.lists(st.builds(Span, st.just("leaf"), st.integers(0, 9), st.none() | TEXT, st.none() | TEXT), max_size=2)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "tool"]), "content": TEXT},
    optional={"tool_calls": st.just([{"id": "1", "function": {"name": "f", "arguments": "{}"}}]), "reasoning": TEXT},
)
LIVED = st.builds(Lived, MESSAGE, IDS, st.none() | TURN, SPANS.map(tuple))
SHOWN = st.builds(Shown, TEXT, TEXT, st.lists(st.builds(Call, TEXT, TEXT, TEXT), max_size=2).map(tuple))


@given(
    SHOWN,
    st.lists(LIVED, max_size=3),
    IDS,
    st.binary(max_size=16),
    st.lists(st.integers(0, 2**31), min_size=4, max_size=4),
)
def test_answer_comes_back_as_it_was(
    shown: Shown, lived: list[Lived], added: Any, strangers: bytes, figures: list[int]
) -> None:
    place, kept, held, own = figures
    node = Remembered(
        *("ann", None, place, shown, tuple(lived), kept, added, held, 7, 3, "engine", "id", own, strangers, b"digest")
    )

    back = deserialize(serialize(node, b"one"), "ann", "id", None, 3, b"other")
    own = deserialize(serialize(node, b"one"), "ann", "id", None, 3, b"one")

    assert (back.engine, back.engine_name) == (NO_ENGINE, "")
    assert (own.engine, own.engine_name) == (7, "engine")
    for name in (
        "owner",
        "place",
        "shown",
        "lived",
        "kept",
        "added",
        "held",
        "original_ids",
        "strangers",
        "digest",
        "answer_id",
    ):
        assert getattr(back, name) == getattr(node, name)


class Replica:
    """What one replica remembers."""

    def __init__(self, shared: SharedMemory) -> None:
        self.shared = shared
        self.memory = ConversationMemory(10_000_000)
        self._number = count()

    def history(self, owner: str, messages: list[dict[str, Any]], key: bytes | None = None) -> History:
        return History(root_digest(key or self.shared.keys[0], owner), messages)

    async def recall(self, owner: str, messages: list[dict[str, Any]], behind: int = -1) -> list[int] | None:
        """The ids of what a request goes on from."""
        histories = [self.history(owner, messages, key) for key in self.shared.keys]
        await self.shared.recall(self.memory, owner, histories, behind, lambda: next(self._number))
        found = self.memory.recall(owner, histories[0], {})
        return None if found is None else found.last.ids()

    async def answer(
        self, owner: str, messages: list[dict[str, Any]], text: str, *ids: int, name: str = ""
    ) -> Remembered:
        """Answer a request, and remember it."""
        history = self.history(owner, messages)
        found = self.memory.recall(owner, history, {})
        before = None if found is None else found.last
        kept = 0 if before is None else len(before.ids())
        message = {"role": "assistant", "content": text}
        node = Remembered(
            owner=owner,
            before=before,
            place=len(messages),
            shown=Shown(text),
            lived=(Lived(message, array("I", ids), LivedTurn()),),
            kept=kept,
            added=array("I", ids),
            held=kept + len(ids),
            engine=1,
            number=next(self._number),
            answer_id=name or f"{owner} {text}",
        )
        self.memory.remember(node, history.with_answer(node.shown))
        await self.shared.keep(node)
        messages.append(message)
        return node


@asynccontextmanager
async def replicas(client: Direct, *secrets: tuple[bytes, ...]) -> AsyncGenerator[list[Replica]]:
    """Replicas with these secrets each."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(shared_in_memory(client, *mine)) for mine in secrets]
        pairs = zip(stores, secrets, strict=True)
        yield [Replica(SharedMemory(store, mine, LimitsConfig(), 60.0)) for store, mine in pairs]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_conversation_goes_on_at_any_replica_with_its_ids() -> None:
    async with replicas(Direct(Memory()), *[(SECRET,)] * 3) as three:
        messages = [user("a")]
        held: list[int] = []
        for number in range(9):
            one = three[number % 3]
            assert await one.recall("ann", messages) == (held or None)
            await one.answer("ann", messages, f"{number}", number, number)
            held += [number, number]
            messages.append(user("more"))


async def test_conversation_of_another_principal_is_nobodys() -> None:
    async with replicas(Direct(Memory()), (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        await one.answer("ann", messages, "b", 1)
        messages.append(user("c"))

        assert await other.recall("bob", messages) is None
        assert await other.recall("ann", [user("x"), *messages[1:]]) is None
        assert await other.recall("ann", messages) == [1]


async def test_two_answers_with_the_same_words_keep_their_ids_apart() -> None:
    async with replicas(Direct(Memory()), (SECRET,), (SECRET,), (SECRET,)) as (one, other, third):
        first, second = [user("a")], [user("a")]
        await one.answer("ann", first, "b", 1, name="first")
        await one.answer("ann", [*first, user("c")], "d", 5, name="behind the first")
        await other.answer("ann", second, "b", 2, name="second")

        messages = [user("a"), {"role": "assistant", "content": "b"}, user("c"), {"role": "assistant", "content": "d"}]
        assert await third.recall("ann", [*messages, user("e")]) == [1, 5]


async def test_secret_is_exchanged_without_a_conversation_lost() -> None:
    async with replicas(Direct(Memory()), (OLD,), (SECRET, OLD), (SECRET,)) as (before, both, after):
        messages = [user("a")]
        await before.answer("ann", messages, "b", 1)
        messages.append(user("c"))
        assert await both.recall("ann", messages) == [1]
        await both.answer("ann", messages, "d", 2)
        messages.append(user("e"))

        assert await both.recall("ann", messages) == [1, 2]
        # Its beginning was sealed with the secret that is gone.
        assert await after.recall("ann", messages) is None


async def test_store_that_is_away_leaves_each_replica_with_its_own() -> None:
    client = Direct(Memory())
    async with replicas(client, (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        client.is_there = False
        await one.answer("ann", messages, "b", 1)
        messages.append(user("c"))

        assert await one.recall("ann", messages) == [1]
        assert await other.recall("ann", messages) is None


async def test_beginning_that_was_answered_while_the_store_was_away_is_written_with_the_next_answer() -> None:
    client = Direct(Memory())
    async with replicas(client, (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        one.shared._shared._store._reason = "away"  # pyright: ignore[reportAttributeAccessIssue]
        await one.answer("ann", messages, "b", 1)
        one.shared._shared._store._reason = None  # pyright: ignore[reportAttributeAccessIssue]
        messages.append(user("c"))
        await one.answer("ann", messages, "d", 2)
        messages.append(user("e"))

        assert await other.recall("ann", messages) == [1, 2]


async def test_answer_that_this_process_has_forgotten_was_given_by_its_engine_and_one_of_another_by_nobodys() -> None:
    async with replicas(Direct(Memory()), (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        await one.answer("ann", messages, "b", 1)
        messages.append(user("c"))
        one.memory = ConversationMemory(10_000_000)
        engines: list[int] = []
        for each in (one, other):
            await each.recall("ann", messages)
            found = each.memory.recall("ann", each.history("ann", messages), {})
            assert found is not None
            engines.append(found.last.engine)

    assert engines == [1, NO_ENGINE]


async def test_what_is_remembered_here_is_not_taken_over_again() -> None:
    async with replicas(Direct(Memory()), (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        await one.answer("ann", messages, "b", 1)
        messages.append(user("c"))
        for _ in range(3):
            await other.recall("ann", messages)
            await one.recall("ann", messages)

        assert one.memory.size == other.memory.size


@pytest.mark.parametrize(("later", "found"), [(63, True), (64, False)])
async def test_last_64_answers_of_a_history_are_looked_up(later: int, found: bool) -> None:
    async with replicas(Direct(Memory()), (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        await one.answer("ann", messages, "b", 1)
        messages += [message for _ in range(later) for message in (user("c"), {"role": "assistant", "content": "d"})]

        assert await other.recall("ann", [*messages, user("e")]) == ([1] if found else None)


@pytest.mark.parametrize(("behind", "found"), [(-1, True), (0, True), (1, False)])
async def test_only_answers_behind_the_last_one_that_is_remembered_are_looked_up(behind: int, found: bool) -> None:
    async with replicas(Direct(Memory()), (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        await one.answer("ann", messages, "b", 1)
        history = other.history("ann", [*messages, user("c")])

        assert await other.shared.recall(other.memory, "ann", [history], behind, lambda: 5) is found
        assert (other.memory.size > 0) is found


async def test_missing_answers_of_one_conversation_get_one_number() -> None:
    async with replicas(Direct(Memory()), (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        for text in ("b", "d"):
            await one.answer("ann", messages, text, 1)
            messages.append(user("c"))
        numbers = iter([5])

        assert await other.shared.recall(other.memory, "ann", [other.history("ann", messages)], -1, numbers.__next__)
        (last,) = other.memory.conversations(9)
        assert [(node.number, node.place, node.answer_id) for node in last.chain()] == [
            (5, 1, "ann b"),
            (5, 3, "ann d"),
        ]


async def test_answer_that_does_not_stand_in_the_history_is_not_accepted() -> None:
    """As where the store gives another answer for a name than was kept under it."""
    async with replicas(Direct(Memory()), (SECRET,), (SECRET,)) as (one, other):
        messages = [user("a")]
        node = await one.answer("ann", messages, "b", 1)
        record = StoreRecord("forged", None, serialize(node, b"one"), (node.digest.hex(),))
        forged = Replica(SharedMemory(Answering(record), other.shared.keys, LimitsConfig(), 60.0))

        assert await forged.recall("ann", [*messages, user("c")]) == [1]
        forged.memory = ConversationMemory(10_000_000)
        for others in ([user("x"), *messages[1:]], [user("x"), user("a"), *messages[1:]]):
            history = forged.history("ann", [*others, user("c")])
            assert await forged.shared.recall(forged.memory, "ann", [history], -1, lambda: 5) is False
        assert forged.memory.size == 0


class Answering:
    """A store that gives one record, whatever it is asked for."""

    def __init__(self, record: StoreRecord) -> None:
        self._record = record

    async def find_alias(self, *_: object) -> list[StoreRecord]:
        return [self._record]


def test_ids_are_written_alike_on_all_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived({"role": "tool", "tool_call_id": "c"}, array("I", [5]))
    node = Remembered("ann", None, 1, Shown("yes"), (lived,), 0, array("I", [1, 258]), 0, 0, 0)
    here, other = sys.byteorder, {"little": "big", "big": "little"}[sys.byteorder]
    written = serialize(node, b"one")
    swapped = array("I", [1, 258])
    swapped.byteswap()

    monkeypatch.setattr(sys, "byteorder", other)
    back = deserialize(written, "ann", "id", None, 3, b"one")
    assert (back.added, deserialize(serialize(node, b"one"), "ann", "id", None, 3, b"one").added) == (
        swapped,
        node.added,
    )
    monkeypatch.setattr(sys, "byteorder", here)
    assert deserialize(written, "ann", "id", None, 3, b"one").added == node.added == array("I", [1, 258])


def test_definitions_and_the_model_s_names_of_calls_come_back() -> None:
    tools = DefinedTools((DefinedTool("paint", b"d", BEGINNING), DefinedTool("say", b"e", 4)))
    lived = Lived({"role": "assistant"}, array("I"), LivedTurn(model_ids=("m1", "m2"), form="|<call>"))
    node = Remembered("ann", None, 1, Shown("yes"), (lived,), 0, array("I"), 0, 0, 0, tools=tools)

    back = deserialize(serialize(node, b"one"), "ann", "id", None, 3, b"one")
    assert (back.tools, back.lived, back.number, back.before) == (tools, node.lived, 3, None)
