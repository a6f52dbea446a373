"""Which answers that clients send back are those that they were given, and what two histories have in common."""

from typing import Any

import pytest

from gateway.context.memory import RETOLD, Call, History, RequestFigures, Shown, retold, root_digest
from gateway.context.memory.message_digests import ordered_results, shown_of
from tests.cases import each_of

SCHEMA = {
    "properties": {"days": {"default": 1}, "deep": {"default": False}, "at": {"properties": {"x": {"default": 0}}}}
}


def echoed(ours: str, theirs: str, *, same_id: bool = False) -> bool:
    given = Shown("", calls=(Call("c", "paint", ours),))
    return given.is_echoed_by(Shown("", calls=(Call("c" if same_id else "d", "paint", theirs),)), {"paint": SCHEMA})


@each_of(
    ("ours", "theirs"),
    [
        ('{"of": 20.0}', '{"of":20}'),
        ('{"a": 1, "b": [1, {"c": 2}]}', '{"b":[1.0,{"c":2}],"a":1}'),
        ("{}", ""),
        ("not JSON", "not JSON"),
    ],
)
@each_of("same_id", [True, False])
def test_arguments_that_mean_the_same_are_the_same(ours: str, theirs: str, same_id: bool) -> None:
    assert echoed(ours, theirs, same_id=same_id)


@each_of(
    ("ours", "theirs"),
    [
        ('{"of": 1}', '{"of": true}'),
        ('{"of": true}', '{"of": 1}'),
        ('{"of": [1, 2, 3]}', '{"of": [1, 9, 3]}'),
        ('{"of": [1, 2]}', '{"of": [1, 2, 3]}'),
        ('{"of": {"a": 1, "b": 2}}', '{"of": {"a": 1, "b": 3}}'),
        ('{"of": {"a": 1}}', '{"of": {"b": 1}}'),
        ('{"of": "1"}', '{"of": 1}'),
        ("not JSON", "no JSON"),
    ],
)
@each_of("same_id", [True, False])
def test_arguments_of_which_one_value_differs_are_others(ours: str, theirs: str, same_id: bool) -> None:
    assert not echoed(ours, theirs, same_id=same_id)


@pytest.mark.parametrize("added", ['"days": 1', '"deep": false', '"at": {"x": 0}, "days": 1.0'])
def test_defaults_may_be_added_to_a_call_with_its_own_id_alone(added: str) -> None:
    ours = '{"at": {}}' if "at" in added else "{}"

    assert echoed(ours, f"{{{added}}}", same_id=True)
    assert not echoed(ours, f"{{{added}}}")


@pytest.mark.parametrize("added", ['"days": 2', '"deep": 0', '"days": true', '"other": 1'])
def test_what_is_added_and_is_no_default_makes_another_call(added: str) -> None:
    assert not echoed("{}", f"{{{added}}}", same_id=True)


def test_argument_that_was_left_out_makes_another_call() -> None:
    assert not echoed('{"of": 1, "days": 1}', '{"days": 1}', same_id=True)


def digest(*messages: dict[str, Any]) -> bytes:
    return History(root_digest(b"key", "alice"), messages).with_answer(Shown("yes"))


def test_name_of_who_speaks_is_part_of_the_history() -> None:
    asked = {"role": "user", "content": "What is it?"}

    assert digest({**asked, "name": "ann"}) != digest(asked)
    assert digest({**asked, "name": "ann"}) != digest({**asked, "name": "bob"})
    assert digest({**asked, "name": ""}) == digest(asked)


def test_texts_do_not_move_from_one_message_into_the_next() -> None:
    assert digest({"role": "user", "content": "ab"}, {"role": "user", "content": "c"}) != digest(
        {"role": "user", "content": "a"}, {"role": "user", "content": "bc"}
    )


def test_results_come_in_the_order_of_their_calls_and_unknown_ones_last() -> None:
    calls = [{"id": name} for name in ("a", "b")]
    results = [{"role": "tool", "tool_call_id": name} for name in ("x", "b", "a")]
    messages = [{"role": "assistant", "tool_calls": calls}, *results, {"role": "user"}, results[1]]

    ordered = ordered_results(messages, lambda message: message)
    assert ordered == [messages[0], results[2], results[1], results[0], {"role": "user"}, results[1]]


@pytest.mark.parametrize(("recomputed", "loss"), [(1, "client_changed"), (0, None)])
def test_tokens_are_lost_only_where_some_were_recomputed(recomputed: int, loss: str | None) -> None:
    assert RequestFigures(9, 3, 5, 5, recomputed, "client_changed").loss == loss


@each_of(
    ("ours", "theirs"),
    [
        ('{"of": [1]}', '{"of": 1}'),
        ('{"of": 1}', '{"of": [1]}'),
        ('{"of": {"a": 1}}', '{"of": 1}'),
        ('{"of": 1}', '{"of": {"a": 1}}'),
        ('{"of": [1]}', '{"of": {"0": 1}}'),
        ('{"of": [1, {"a": true}]}', '{"of": [1, {"a": false}]}'),
        ('{"of": [1]}', '{"of": [true]}'),
        ('{"of": {"a": 1}}', '{"of": {"a": true}}'),
        ("[1]", "{}"),
        ("{}", "[1]"),
        ("[" * 100_000, "[" * 99_999),
    ],
)
@each_of("same_id", [True, False])
def test_values_of_other_kinds_are_others(ours: str, theirs: str, same_id: bool) -> None:
    assert not echoed(ours, theirs, same_id=same_id)


@pytest.mark.parametrize("arguments", ['{"of": NaN}', "[" * 100_000, " "])
def test_arguments_that_are_written_alike_are_the_same_whatever_they_are(arguments: str) -> None:
    assert echoed(arguments, arguments)
    assert echoed(" ", "{}")


def test_defaults_need_an_id_and_a_schema_that_says_them() -> None:
    ours, theirs = (Shown("", calls=(Call("", "paint", text),)) for text in ("{}", '{"days": 1}'))
    assert not ours.is_echoed_by(theirs, {"paint": SCHEMA})

    ours, theirs = (Shown("", calls=(Call("c", "paint", text),)) for text in ("{}", '{"days": 1}'))
    assert ours.is_echoed_by(theirs, {"paint": SCHEMA})
    for schemas in ({}, {"other": SCHEMA}, {"paint": {"properties": 5}}, {"paint": {"properties": {"days": True}}}):
        assert not ours.is_echoed_by(theirs, schemas)


def test_each_call_of_an_answer_is_compared_with_its_own() -> None:
    ours = Shown("", calls=(Call("a", "paint", '{"of": 1}'), Call("b", "paint", '{"of": 2}')))

    assert ours.is_echoed_by(Shown("", calls=(Call("x", "paint", '{"of":1}'), Call("y", "paint", '{"of":2}'))), {})
    for theirs in ((ours.calls[0], Call("b", "paint", "{}")), (Call("a", "paint", "{}"), ours.calls[1])):
        assert not ours.is_echoed_by(Shown("", calls=theirs), {})
    for theirs in (ours.calls[:1], (*ours.calls, ours.calls[0]), ()):
        assert not ours.is_echoed_by(Shown("", calls=theirs), {})


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("Hm.", "", True),
        ("Hm.", " \n", True),
        (" Hm.\n", "Hm. ", True),
        ("Hm.", "Hm", False),
        ("", "Hm.", False),
        ("", "", True),
    ],
)
def test_reasoning_may_be_left_out_and_not_changed(ours: str, theirs: str, same: bool) -> None:
    assert Shown("a", ours).is_echoed_by(Shown("a", theirs), {}) is same


ANSWER: dict[str, Any] = {
    "role": "assistant",
    "content": " Yes. ",
    "reasoning_content": "Hm.",
    "tool_calls": [{"id": "c", "function": {"name": "paint", "arguments": '{"of": 1}'}}],
}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (ANSWER, Shown(" Yes. ", "Hm.", (Call("c", "paint", '{"of": 1}'),))),
        ({"content": None, "reasoning": "Hm.", "tool_calls": None}, Shown("", "Hm.")),
        ({"reasoning_content": "", "reasoning": "Hm."}, Shown("", "Hm.")),
        ({"reasoning_content": "Hm.", "reasoning": "Other"}, Shown("", "Hm.")),
        ({"reasoning_content": ["Hm."]}, Shown("")),
        ({"tool_calls": [{"function": {"name": "paint"}}]}, Shown("", calls=(Call("", "paint", "{}"),))),
        (
            {"tool_calls": [{"id": 5, "function": {"name": "a", "arguments": ""}}]},
            Shown("", calls=(Call("5", "a", "{}"),)),
        ),
    ],
)
def test_answer_is_read_as_a_client_sends_it(message: dict[str, Any], shown: Shown) -> None:
    assert shown_of(message) == shown


def test_answer_is_written_as_a_message() -> None:
    calls = [{"id": "c", "function": {"name": "paint", "arguments": "{}"}}]

    assert Shown("Yes.", "Hm.", (Call("c", "paint", "{}"),)).message == {
        "role": "assistant",
        "content": "Yes.",
        "tool_calls": calls,
    }


QUESTION: dict[str, Any] = {"role": "user", "content": "What is it?"}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": "It is 4."}
TOLD = [QUESTION, ANSWER, RESULT]


def test_history_has_its_answers_by_their_places_each_with_a_digest_of_all_before_it() -> None:
    history = History(b"root", [*TOLD, ANSWER])

    assert history.shown == {1: shown_of(ANSWER), 3: shown_of(ANSWER)}
    assert history.answers == [
        (1, History(b"root", TOLD[:1]).with_answer(shown_of(ANSWER))),
        (3, History(b"root", TOLD).with_answer(shown_of(ANSWER))),
    ]
    assert {len(answer) for _, answer in history.answers} == {16}
    assert (history.root, history.messages) == (b"root", [*TOLD, ANSWER])


def changed(place: int, **fields: Any) -> bytes:
    """The digest of a history with this change."""
    messages = [*TOLD]
    messages[place] = {**messages[place], **fields}
    return History(b"root", messages).with_answer(Shown("yes"))


NEW_CALL = {"id": "d", "function": {"name": "paint", "arguments": "{}"}}


def test_digest_covers_roles_texts_and_names_of_calls() -> None:
    same = changed(0)
    others = [
        changed(0, content="What?"),
        changed(0, role="system"),
        changed(0, name="ann"),
        changed(1, content="No."),
        changed(1, tool_calls=[]),
        changed(1, tool_calls=[{"id": "c", "function": {"name": "say"}}]),
        changed(1, tool_calls=[*ANSWER["tool_calls"], NEW_CALL]),
        changed(2, content="It is 5."),
        changed(2, tool_call_id="x"),
        changed(2, role="user"),
        History(b"other", TOLD).with_answer(Shown("yes")),
        History(b"root", TOLD).with_answer(Shown("no")),
        History(b"root", TOLD[:2]).with_answer(Shown("yes")),
    ]

    assert len({same, *others}) == 1 + len(others)
    assert changed(0, content="\ud800") != changed(0, content="\ud801")
    assert changed(0, content=None) == changed(0, content="")


def test_digest_does_not_cover_what_clients_rewrite() -> None:
    call = {"id": "c", "function": {"name": "paint", "arguments": "{}"}}

    assert changed(0) == changed(1, content="Yes.", reasoning_content="", tool_calls=[call])
    assert changed(0, name=None) == changed(0)
    renamed = [QUESTION, {**ANSWER, "tool_calls": [{**call, "id": "x"}]}, {**RESULT, "tool_call_id": "x"}]
    assert History(b"root", renamed).with_answer(Shown("yes")) == changed(0)


def test_results_are_told_apart_by_the_places_of_their_calls() -> None:
    def digest_of(*results: tuple[str, str]) -> bytes:
        answer = {**ANSWER, "tool_calls": [{"id": name, "function": {"name": "paint"}} for name in ("a", "b")]}
        told = [{"role": "tool", "tool_call_id": name, "content": content} for name, content in results]
        return History(b"root", [QUESTION, answer, *told]).with_answer(Shown("yes"))

    assert digest_of(("a", "1"), ("b", "2")) == digest_of(("b", "2"), ("a", "1"))
    assert digest_of(("a", "1"), ("b", "2")) != digest_of(("a", "2"), ("b", "1"))
    assert digest_of(("a", "1")) != digest_of(("b", "1")) != digest_of(("x", "1"))
    assert digest_of(("x", "1")) == digest_of(("y", "1"))


def test_two_results_come_in_the_order_of_their_calls_whatever_their_ids_are() -> None:
    calls = {"role": "assistant", "tool_calls": [{"id": 1}, {"id": 2}]}
    results = [{"role": "tool", "tool_call_id": name} for name in ("1", "2")]

    assert ordered_results([calls, *reversed(results)], lambda message: message) == [calls, *results]
    assert ordered_results([*reversed(results), calls], lambda message: message) == [*reversed(results), calls]
    assert ordered_results([{**calls, "tool_calls": None}, *results], lambda m: m)[1:] == results


def test_answers_that_are_not_remembered_are_told_apart_by_what_a_digest_does_not_cover() -> None:
    def strangers(*messages: dict[str, Any], start: int = 0, stop: int = 9) -> bytes:
        return History(b"root", messages).strangers(start, stop)

    call = ANSWER["tool_calls"][0]
    found = [
        strangers(*TOLD),
        strangers(QUESTION, {**ANSWER, "reasoning_content": "No."}),
        strangers(QUESTION, {**ANSWER, "tool_calls": [{**call, "id": "d"}]}),
        strangers(QUESTION, {**ANSWER, "tool_calls": [NEW_CALL]}),
        strangers(QUESTION, ANSWER, ANSWER),
        strangers(QUESTION),
    ]
    assert len(set(found)) == len(found)
    assert {len(each) for each in found[:-1]} == {16}
    assert found[-1] == b""
    assert strangers(QUESTION, {**ANSWER, "content": "Else"}) == found[0]
    assert strangers(*TOLD, start=1, stop=2) == found[0]
    assert strangers(*TOLD, start=0, stop=1) == strangers(*TOLD, start=2, stop=9) == b""


def test_root_digest_is_of_all_parts_and_of_the_key() -> None:
    digests = [
        root_digest(b"key", "a", "b"),
        root_digest(b"other", "a", "b"),
        root_digest(b"key", "ab"),
        root_digest(b"key", "a"),
        root_digest(b"key"),
    ]
    assert len(set(digests)) == len(digests)
    assert {len(each) for each in digests} == {16}


def test_message_that_a_client_sent_in_several_parts_stands_for_these() -> None:
    parts = [{"role": "user"}, {"role": "assistant"}]

    assert retold({"role": "assistant", RETOLD: parts}) == parts
    assert retold(QUESTION) == (QUESTION,)
