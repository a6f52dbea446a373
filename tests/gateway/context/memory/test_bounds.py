"""The bytes that remembered conversations may take: whose are dropped, and which of a principal's, if they are full."""

from array import array
from typing import Any

from gateway.context.memory import (
    ConversationMemory,
    History,
    Lived,
    LivedTurn,
    Recalled,
    Remembered,
    Shown,
    root_digest,
)
from gateway.context.memory.defined_tools import BEGINNING, NO_TOOLS, ToolDigests
from gateway.toolcalls.schema.spec import ToolSpec

SCHEMAS: dict[str, Any] = {}
IDS = 2_000
"""Ids of an answer: most of its size."""


class Client:
    """Continues and recalls conversations of one principal; each conversation is named by its first question."""

    def __init__(self, memory: ConversationMemory, owner: str) -> None:
        self.memory = memory
        self.owner = owner
        self.messages: dict[str, list[dict[str, Any]]] = {}

    def _history(self, question: str) -> History:
        return History(root_digest(b"key", self.owner), self.messages.setdefault(question, []))

    def ask(self, question: str) -> Recalled | None:
        """What a request that continues the conversation finds."""
        return self.memory.recall(self.owner, self._history(question), SCHEMAS)

    def answers(self, question: str) -> int:
        """How many answers of the conversation are remembered, from its beginning. Does not use any of them."""
        conversations = [node for node in self.memory.conversations(100) if node.owner == self.owner]
        texts = {each.shown.content for node in conversations for each in node.chain()}
        return sum(message["content"] in texts for message in self.messages[question][1::2])

    def continue_(self, *questions: str) -> None:
        """Each conversation gets a question and an answer."""
        for question in questions:
            recalled = self.ask(question)
            messages = self.messages[question]
            messages.append({"role": "user", "content": question})
            shown = Shown(f"{question} {len(messages)}")
            history = self._history(question)
            before = recalled.last if recalled is not None else None
            added = array("I", range(IDS))
            kept = before.kept + len(before.added) if before is not None else 0
            lived = (Lived({"role": "assistant", "content": shown.content}, added, LivedTurn()),)
            node = Remembered(self.owner, before, len(messages), shown, lived, kept, added, 0, 0, 0)
            messages.append(dict(shown.message))
            self.memory.remember(node, history.with_answer(shown))


def size_of_an_answer() -> int:
    memory = ConversationMemory(10**9)
    Client(memory, "a").continue_("a1")
    return memory.size


def room_for(answers: int, share: float = 1.0) -> ConversationMemory:
    return ConversationMemory(answers * size_of_an_answer() + 500, share)


def test_principal_has_no_more_than_its_share_beside_others():
    memory = room_for(8, share=0.5)
    alice, bob = Client(memory, "alice"), Client(memory, "bob")
    bob.continue_("b1")
    questions = [f"a{n}" for n in range(1, 7)]
    alice.continue_(*questions)

    assert [question for question in questions if alice.answers(question)] == questions[2:]
    assert bob.answers("b1") == 1


def test_principal_that_is_alone_has_all_of_it():
    alice = Client(room_for(8, share=0.5), "alice")
    questions = [f"a{n}" for n in range(1, 9)]
    alice.continue_(*questions)

    assert all(alice.answers(question) for question in questions)


def test_principal_that_has_the_most_makes_room_for_the_others():
    memory = room_for(4)
    bob, alice = Client(memory, "bob"), Client(memory, "alice")
    bob.continue_("b1")
    alice.continue_("a1", "a2", "a3")
    bob.continue_("b2")

    assert [bob.answers("b1"), bob.answers("b2")] == [1, 1]
    assert [alice.answers(question) for question in ("a1", "a2", "a3")] == [0, 1, 1]


def test_conversation_that_was_used_least_recently_is_dropped_first():
    alice = Client(room_for(3), "alice")
    alice.continue_("a1", "a2", "a3")
    # A request that continues the oldest makes it the latest.
    assert alice.ask("a1") is not None
    alice.continue_("a4")
    assert [alice.answers(question) for question in ("a1", "a2", "a3", "a4")] == [1, 0, 1, 1]

    alice.continue_("a5")
    assert [alice.answers(question) for question in ("a1", "a2", "a3", "a4", "a5")] == [1, 0, 0, 1, 1]


def test_rest_of_a_conversation_that_lost_its_end_goes_before_those_used_after_it():
    alice = Client(room_for(4), "alice")
    alice.continue_("a1", "a1", "a2", "a3")
    alice.continue_("a4", "a5")

    # Both answers of the oldest, from its end, and nothing of the others.
    assert [alice.answers(question) for question in ("a1", "a2", "a3", "a4", "a5")] == [0, 1, 1, 1, 1]


def test_answer_that_fills_the_share_to_its_last_byte_has_room():
    memory = ConversationMemory(8 * size_of_an_answer(), 0.5)
    bob, alice = Client(memory, "bob"), Client(memory, "alice")
    bob.continue_("b1")
    questions = [f"a{n}" for n in range(1, 5)]
    alice.continue_(*questions)

    assert all(alice.answers(question) for question in questions)


def test_reasoning_counts_like_content():
    def sized(shown: Shown) -> int:
        memory, history = ConversationMemory(10**9), History(b"root", [])
        memory.remember(Remembered("a", None, 0, shown, (), 0, array("I"), 0, 0, 0), history.with_answer(shown))
        return memory.size

    assert sized(Shown("x" * 500)) - sized(Shown("")) == 500
    assert sized(Shown("", "x" * 500)) - sized(Shown("")) == 500


def test_only_some_answers_with_the_same_text_are_remembered():
    memory, history = ConversationMemory(10**9), History(b"root", [{"role": "user", "content": "?"}])
    digest = history.with_answer(Shown("yes"))
    for number in range(20):
        node = Remembered("a", None, 1, Shown("yes"), (), 0, array("I"), 0, 0, 0, answer_id=str(number))
        memory.remember(node, digest)

    kept = [number for number in range(20) if memory.same(digest, str(number)) is not None]
    assert kept == [*range(12, 20)]


def test_answers_that_nobody_remembers_are_compared_from_the_first_message_on():
    hello = {"role": "assistant", "content": "Hello", "tool_calls": [], "reasoning_content": "Greet."}
    asked = [hello, {"role": "user", "content": "?"}]
    memory = ConversationMemory(10**9)
    history = History(b"root", asked)
    node = Remembered(
        *("a", None, 2, Shown("yes"), (), 0, array("I"), 0, 0, 0), strangers=history.strangers(0, len(asked))
    )
    memory.remember(node, history.with_answer(Shown("yes")))
    answered = [*asked, {"role": "assistant", "content": "yes"}]
    other = [{**hello, "reasoning_content": "Be rude."}, *answered[1:]]

    assert memory.recall("a", History(b"root", answered), SCHEMAS) is not None
    assert memory.recall("a", History(b"root", other), SCHEMAS) is None


def test_answer_that_nobody_remembers_right_behind_one_that_is_remembered_is_compared():
    memory, asked = ConversationMemory(10**9), [{"role": "user", "content": "?"}]
    first = Remembered("a", None, 1, Shown("yes"), (), 0, array("I"), 0, 0, 0)
    memory.remember(first, History(b"root", asked).with_answer(Shown("yes")))
    said = {"role": "assistant", "content": "Also", "reasoning_content": "Go on."}
    more = [*asked, {"role": "assistant", "content": "yes"}, said]
    history = History(b"root", more)
    node = Remembered(
        *("a", first, 3, Shown("no"), (), 0, array("I"), 0, 0, 0), strangers=history.strangers(2, len(more))
    )
    memory.remember(node, history.with_answer(Shown("no")))
    other = [*more[:2], {**said, "reasoning_content": "Stop."}]

    def place(messages: list[dict[str, Any]]) -> int | None:
        answered = [*messages, {"role": "assistant", "content": "no"}]
        recalled = memory.recall("a", History(b"root", answered), SCHEMAS)
        return None if recalled is None else recalled.last.place

    assert (place(more), place(other)) == (3, 1)


def test_branches_of_one_conversation_are_found_and_those_of_no_other():
    memory = ConversationMemory(10**9)
    for number, made in ((1, 5.0), (2, 7.0), (1, 9.0), (1, None)):
        history = History(b"root", [{"role": "user", "content": f"{number} {made}"}])
        node = Remembered("a", None, 1, Shown("yes"), (), 0, array("I"), 0, 0, number, made=made)
        memory.remember(node, history.with_answer(Shown("yes")))

    assert [node.made for node in memory.branches(1)] == [9.0, 5.0, None]
    assert [node.made for node in memory.branches(2)] == [7.0]
    assert memory.branches(3) == []


def test_of_very_many_dropped_answers_the_first_are_forgotten_altogether():
    memory = ConversationMemory(2000)
    histories = [History(b"root", [{"role": "user", "content": str(number)}]) for number in range(4200)]
    for history in histories:
        node = Remembered("a", None, 1, Shown("yes"), (), 0, array("I"), 0, 0, 0)
        memory.remember(node, history.with_answer(Shown("yes")))
    answered = [History(b"root", [*each.messages, {"role": "assistant", "content": "yes"}]) for each in histories]

    dropped = [memory.forgotten(each) is not None for each in answered]
    assert dropped == [False] * (4199 - 4096) + [True] * 4096 + [False]


def test_answer_is_recalled_for_its_owner_alone_even_under_the_same_digest():
    memory, asked = ConversationMemory(10**9), [{"role": "user", "content": "?"}]
    history = History(b"root", asked)
    node = Remembered("alice", None, 1, Shown("yes"), (), 0, array("I"), 0, 0, 0)
    memory.remember(node, history.with_answer(Shown("yes")))
    answered = History(b"root", [*asked, {"role": "assistant", "content": "yes"}])

    assert memory.recall("alice", answered, SCHEMAS) is not None
    assert memory.recall("bob", answered, SCHEMAS) is None


def test_definitions_that_came_with_a_request_count_once_for_a_conversation() -> None:
    tool = ToolSpec("paint", "Paint it. " * 1000, {"type": "object"})
    shown, history = Shown("yes"), History(b"", [{"role": "user", "content": "?"}])

    def size(owned: bool, *, again: bool = False) -> int:
        memory = ConversationMemory(10**9)
        tools = NO_TOOLS.having([tool], BEGINNING, ToolDigests(), {"paint"} if owned else ())
        node = Remembered("a", None, 1, shown, (), 0, array("I"), 0, 0, 0, tools=tools)
        memory.remember(node, history.with_answer(shown))
        if again:
            before = memory.size
            after = Remembered("a", node, 3, shown, (), 0, array("I"), 0, 0, 0, tools=tools)
            memory.remember(after, history.with_answer(Shown("no")))
            return memory.size - before
        return memory.size

    assert size(owned=True) > size(owned=False) + 4 * len(tool.description)
    assert size(owned=True, again=True) == size(owned=False, again=True)
