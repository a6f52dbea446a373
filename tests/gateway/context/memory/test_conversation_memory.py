"""What a memory of conversations finds, keeps and counts."""

import sys
from array import array
from typing import Any

import pytest

from gateway.context.memory import (
    BEGINNING,
    NO_TOOLS,
    RETOLD,
    AnswerRecord,
    Call,
    ConversationMemory,
    History,
    KeptResult,
    Lived,
    LivedTurn,
    Remembered,
    Shown,
    Turn,
    recalled,
)
from gateway.context.memory.defined_tools import ToolDigests
from gateway.observe.trajectories import Span
from gateway.toolcalls.schema.spec import ToolSpec

MOST = 10**9


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def answered(
    memory: ConversationMemory,
    messages: list[dict[str, Any]],
    text: str = "yes",
    before: Remembered | None = None,
    owner: str = "ann",
    number: int = 0,
    **fields: Any,
) -> Remembered:
    """Remember an answer to these messages, which then has itself among them."""
    fields = {"lived": (), "kept": 0, "added": array("I"), "held": 0, "engine": 0} | fields
    node = Remembered(owner, before, len(messages), Shown(text), number=number, **fields)
    memory.remember(node, History(b"root", messages).with_answer(node.shown))
    messages.append(said(text))
    return node


def found(memory: ConversationMemory, messages: list[dict[str, Any]], owner: str = "ann") -> Remembered | None:
    back = memory.recall(owner, History(b"root", messages), {})
    return None if back is None else back.last


TEXT_BYTES = sys.getsizeof("yes") + sys.getsizeof("")


def test_size_of_an_answer_is_counted_to_the_byte() -> None:
    memory = ConversationMemory(MOST)
    lived = (Lived({"role": "tool"}, array("I", [1])), Lived({"role": "assistant"}, array("I"), LivedTurn()))
    tools = NO_TOOLS.having([ToolSpec("a", "", {}), ToolSpec("b", "", {})], BEGINNING, ToolDigests())
    record = AnswerRecord("stop", 0, [Span("model", 1)], [], [], None)
    results = tuple(KeptResult(str(n), "ann", "t", "m", 1, (), b"", "") for n in range(3))

    plain = answered(memory, [user("a")])
    assert plain.size == memory.size == 1200 + TEXT_BYTES
    assert answered(memory, [user("b")], added=array("I", range(5))).size == plain.size + 5 * 4
    assert answered(memory, [user("c")], lived=lived).size == plain.size + sum(each.size for each in lived)
    assert answered(memory, [user("d")], tools=tools).size == plain.size + tools.size
    assert answered(memory, [user("e")], results=results).size == plain.size + 3 * 800
    assert answered(memory, [user("f")], record=record).size == plain.size + record.size


def test_answer_that_follows_counts_only_what_it_adds() -> None:
    memory, messages = ConversationMemory(MOST), [user("a")]
    tools = NO_TOOLS.having([ToolSpec("a", "", {})], BEGINNING, ToolDigests())
    more = tools.having([ToolSpec("b", "", {})], 2, ToolDigests())
    results = tuple(KeptResult(str(n), "ann", "t", "m", 1, (), b"", "") for n in range(3))
    first = answered(memory, messages, tools=tools, results=results[:2])
    second = answered(memory, [*messages, user("c")], before=first, tools=more, results=results)

    assert first.size == 1200 + TEXT_BYTES + 200 + 2 * 800
    assert second.size == 1200 + TEXT_BYTES + 200 + 800
    assert memory.size == first.size + second.size


def test_longest_conversation_that_is_remembered_is_recalled() -> None:
    memory, messages = ConversationMemory(MOST), [user("a")]
    first = answered(memory, messages, "b")
    messages.append(user("c"))
    second = answered(memory, messages, "d", before=first)

    assert found(memory, messages) is second
    assert found(memory, [*messages, user("e")]) is second
    assert found(memory, [*messages, user("e"), said("f")]) is second
    assert found(memory, [*messages[:3], said("other")]) is first
    assert found(memory, messages[:1]) is None
    assert found(memory, messages, "bob") is None
    assert found(memory, [user("x"), *messages[1:]]) is None


def test_answer_is_recalled_at_its_own_place_only() -> None:
    memory = ConversationMemory(MOST)
    history = History(b"root", [user("a")])
    node = Remembered("ann", None, 3, Shown("yes"), (), 0, array("I"), 0, 0, 0)
    memory.remember(node, history.with_answer(node.shown))

    assert found(memory, [user("a"), said("yes")]) is None


def test_of_several_answers_alike_the_one_that_lacks_least_or_else_the_newest_is_recalled() -> None:
    memory = ConversationMemory(MOST)
    nodes = [answered(memory, [user("a")], number=number) for number in range(3)]
    history = History(b"root", [user("a"), said("yes")])

    def recalls(lacks: Any) -> Remembered:
        back = memory.recall("ann", history, {}, lacks)
        assert back is not None
        return back.last

    assert recalls(lambda node: (0, 0)) is nodes[2]
    assert recalls(lambda node: (node.number, 0)) is nodes[0]
    assert recalls(lambda node: (1, abs(node.number - 1))) is nodes[1]
    assert found(memory, history.messages) is nodes[2]


def test_answer_is_recalled_where_all_before_it_are_the_clients_too() -> None:
    memory = ConversationMemory(MOST)

    def told(*arguments: str) -> list[dict[str, Any]]:
        return [
            each
            for number, text in enumerate(arguments)
            for each in (user(str(number)), dict(Shown("", calls=(Call("c", "paint", text),)).message))
        ]

    before: Remembered | None = None
    for number in range(3):
        shown = Shown("", calls=(Call("c", "paint", '{"of": 1}'),))
        history = History(b"root", [*told(*['{"of": 1}'] * number), user(str(number))])
        before = Remembered("ann", before, 2 * number + 1, shown, (), 0, array("I"), 0, 0, 0)
        memory.remember(before, history.with_answer(shown))

    places = [
        None if (node := found(memory, told(*arguments))) is None else node.place
        for arguments in (['{"of":1}'] * 3, ['{"of":1}', "{}", '{"of":1}'], ["{}", '{"of":1}', '{"of":1}'])
    ]
    assert places == [5, 1, None]


def test_answer_is_found_by_its_id_under_its_digest() -> None:
    memory = ConversationMemory(MOST)
    nodes = [answered(memory, [user("a")], answer_id=name) for name in ("one", "two")]

    assert nodes[0].digest == nodes[1].digest == History(b"root", [user("a")]).with_answer(Shown("yes"))
    assert [memory.same(nodes[0].digest, name) for name in ("one", "two", "none")] == [*nodes, None]
    assert memory.same(b"", "one") is None


def test_text_stands_for_a_conversation_of_its_principal_until_that_is_dropped() -> None:
    memory = ConversationMemory(2 * (1200 + TEXT_BYTES))
    node = answered(memory, [user("a")])
    memory.sum_up(node, "They talked.")

    assert memory.summed_up("ann", "They talked.") is node
    assert memory.summed_up("bob", "They talked.") is None
    assert memory.summed_up("ann", "They talked") is None
    answered(memory, [user("b")])
    assert memory.summed_up("ann", "They talked.") is node
    # That it was asked for counts as use.
    answered(memory, [user("c")])
    assert found(memory, [user("b"), said("yes")]) is None
    for text in "de":
        answered(memory, [user(text)])
    assert memory.summed_up("ann", "They talked.") is None


def test_newer_answer_that_a_text_stands_for_outlives_the_older() -> None:
    memory = ConversationMemory(2 * (1200 + TEXT_BYTES))
    older, newer = (answered(memory, [user(text)]) for text in "ab")
    memory.sum_up(older, "They talked.")
    memory.sum_up(newer, "They talked.")
    answered(memory, [user("c")])

    assert memory.summed_up("ann", "They talked.") is newer


def test_last_answers_are_listed_the_latest_first() -> None:
    memory = ConversationMemory(MOST)
    times = {"a": 5.0, "b": None, "c": 9.0, "d": 7.0}
    nodes = {text: answered(memory, [user(text)], made=made) for text, made in times.items()}
    nodes["e"] = answered(memory, [user("e")], owner="bob", made=8.0)
    follower = answered(memory, [user("a"), said("yes"), user("f")], before=nodes["a"], made=1.0)

    assert memory.conversations(9) == [nodes["c"], nodes["e"], nodes["d"], follower, nodes["b"]]
    assert memory.conversations(2) == [nodes["e"], nodes["d"]]
    assert memory.conversations(0) == []
    assert memory.branches(0) == [nodes["c"], nodes["e"], nodes["d"], follower, nodes["b"]]


def test_records_are_forgotten_and_their_answers_are_not() -> None:
    memory, messages = ConversationMemory(MOST), [user("a")]
    record = AnswerRecord("stop", 0, [], [], [], None)
    node = answered(memory, messages, record=record)
    plain = answered(memory, [user("b")])
    sizes = memory.size, node.size
    memory.forget_records()

    assert node.record is None
    assert (memory.size, node.size) == tuple(size - record.size for size in sizes)
    assert plain.size == node.size
    assert found(memory, messages) is node
    memory.forget_records()
    assert (memory.size, node.size) == tuple(size - record.size for size in sizes)


def test_changes_count_what_is_added_dropped_and_used() -> None:
    memory = ConversationMemory(2 * (1200 + TEXT_BYTES))

    def changes(act: Any) -> int:
        before = memory.changes
        act()
        return memory.changes - before

    assert [changes(lambda text=text: answered(memory, [user(text)])) for text in "abc"] == [1, 1, 2]
    assert changes(lambda: found(memory, [user("b"), said("yes")])) == 1
    assert changes(lambda: found(memory, [user("x")])) == 0
    assert changes(memory.forget_records) == 1


@pytest.mark.parametrize("turn", [None, LivedTurn()])
def test_dropped_answer_is_known_to_have_been_there_and_whether_results_went_with_it(turn: LivedTurn | None) -> None:
    memory = ConversationMemory(2 * (1200 + TEXT_BYTES) + 2000)
    lived = (Lived({"role": "assistant"}, array("I"), LivedTurn()), Lived({"role": "tool"}, array("I"), turn))
    dropped = [user("a")]
    answered(memory, dropped, lived=lived)
    for text in "bcd":
        answered(memory, [user(text)])

    assert memory.forgotten(History(b"root", dropped)) is (turn is None)
    assert memory.forgotten(History(b"root", [*dropped, user("e"), said("f")])) is (turn is None)
    assert memory.forgotten(History(b"root", [user("d"), said("yes")])) is None
    assert memory.forgotten(History(b"root", [user("never")])) is None


def test_answers_that_were_dropped_while_one_was_made_are_kept_again_with_it() -> None:
    memory, messages = ConversationMemory(3 * (1200 + TEXT_BYTES)), [user("a")]
    first = answered(memory, messages)
    for text in "bcd":
        answered(memory, [user(text)])
    assert found(memory, messages) is None
    messages.append(user("e"))
    second = answered(memory, messages, before=first)

    assert found(memory, messages) is second
    assert found(memory, messages[:2]) is first
    assert (first.followers, second.followers) == (1, 0)
    assert memory.size == 3 * (1200 + TEXT_BYTES)


def test_answer_that_others_follow_is_not_dropped_for_one_that_is_alike() -> None:
    memory = ConversationMemory(MOST)
    first = answered(memory, [user("a")], answer_id="first")
    answered(memory, [user("a"), said("yes"), user("b")], before=first)
    for number in range(9):
        answered(memory, [user("a")], answer_id=str(number))

    assert [memory.same(first.digest, name) is not None for name in ("first", "0", "1", "8")] == [
        True,
        False,
        True,
        True,
    ]


def test_principal_without_answers_is_no_other_any_more() -> None:
    size = 1200 + TEXT_BYTES
    memory = ConversationMemory(4 * size, 0.5)
    answered(memory, [user("a")], owner="bob")
    for text in "abcd":
        answered(memory, [user(text)])
    # Two of four while bob has one; all of it once he has none.
    assert memory.size == 3 * size
    assert [found(memory, [user(text), said("yes")]) is not None for text in "abcd"] == [False, False, True, True]


def called(*names: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": name} for name in names]}


def result(call_id: str, content: str = "") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_recalled_conversation_is_as_the_model_lived_it_and_what_is_new_follows() -> None:
    ran, last = Lived(called("a", "b"), array("I"), LivedTurn()), Lived(said("It is."), array("I"), LivedTurn())
    own = Lived(result("b"), array("I"))
    node = Remembered("ann", None, 1, Shown("It is."), (ran, own, last), 0, array("I"), 0, 0, 0)
    back = recalled(node, [user("a"), said("It is."), result("b", "sent again"), result("x"), user("c")])

    assert back.last is node
    assert back.lived == (Turn(user("a")), Turn(ran.message, ran), Turn(own.message, own), Turn(last.message, last))
    assert back.new == (Turn(result("x")), Turn(user("c")))


def test_results_behind_the_last_turn_are_new_in_the_order_of_their_calls() -> None:
    ran, own = Lived(called("a", "b"), array("I"), LivedTurn()), Lived(result("b"), array("I"))
    node = Remembered("ann", None, 1, Shown(""), (ran, own), 0, array("I"), 0, 0, 0)
    back = recalled(node, [user("q"), called("a"), result("a", "4"), user("c")])

    assert back.lived == (Turn(user("q")), Turn(ran.message, ran))
    assert back.new == (Turn(result("a", "4")), Turn(own.message, own), Turn(user("c")))


def test_answer_that_is_not_remembered_is_what_its_client_sent_for_it() -> None:
    node = Remembered(
        "ann", None, 2, Shown("yes"), (Lived(said("yes"), array("I"), LivedTurn()),), 0, array("I"), 0, 0, 0
    )
    parts = [called("a"), result("a"), said("so")]
    back = recalled(node, [user("q"), {**said("so"), RETOLD: parts}, said("yes"), user("tool_call_id")])

    assert [turn.message for turn in back.lived] == [user("q"), *parts, said("yes")]
    assert back.new == (Turn(user("tool_call_id")),)


def test_results_are_lost_with_a_conversation_that_lost_those_of_one_answer() -> None:
    memory, messages = ConversationMemory(2 * (1200 + TEXT_BYTES) + 1000), [user("a")]
    first = answered(memory, messages, lived=(Lived({"role": "tool"}, array("I")),))
    messages.append(user("b"))
    answered(memory, messages, before=first)
    for text in "cd":
        answered(memory, [user(text)])

    assert memory.forgotten(History(b"root", messages)) is True
