"""Exactly what is taken out of a history, and when; the words that stand for what was summed up."""

from typing import Any

import pytest

from gateway.context.history.shortening import (
    CLEARED,
    INSTRUCTION,
    ClearedHistory,
    Clearing,
    add_message,
    after_summary,
    is_summary,
    last_words,
    summary_text,
    with_cleared_results,
    with_instruction,
    words_behind,
)
from gateway.context.memory import FOUND_TOOLS, SUMMARY, KeptResult
from tests.cases import each_of

HEAD = "The earlier part of this conversation was replaced by this summary of it:"
LAST = "The user's last message was:"


def said(role: str, content: Any = "", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


# Results that are taken out.


def call(name: str, arguments: str = "{}", tool: str = "look") -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}


def used(name: str, size: int, arguments: str = "{}", tool: str = "look") -> list[dict[str, Any]]:
    """A call with a result of so many characters."""
    return [
        said("assistant", tool_calls=[call(name, arguments, tool)]),
        said("tool", name * size, tool_call_id=name),
    ]


def cleared(*messages: dict[str, Any], **rule: Any) -> ClearedHistory:
    return with_cleared_results(messages, Clearing(**{"tokens": None, "least": 0, "keep": 0, **rule}))


def left(*messages: dict[str, Any], **rule: Any) -> str:
    """The first letters of the results that are still there."""
    found = cleared(*messages, **rule).messages
    return "".join(each["content"][:1] for each in found if each["role"] == "tool" and each["content"] != CLEARED)


GAIN = 400 - len(CLEARED)
"""Characters that taking out a result of 400 gains."""
LATER = (said("assistant", None), said("user"))
"""The model has answered to what came before, and is asked again."""


@pytest.mark.parametrize(("size", "stays"), [(398, "a"), (399, "")])
def test_history_is_long_once_it_has_more_characters_than_four_for_each_token(size: int, stays: str) -> None:
    # The arguments have 2.
    assert left(*used("a", size), *LATER, tokens=100) == stays


def test_contents_and_arguments_make_a_history_long() -> None:
    asked = said("user", "x" * 100)

    assert left(asked, *used("a", 200, "y" * 101), *LATER, tokens=100) == ""
    assert left(asked, *used("a", 200, "y" * 100), *LATER, tokens=100) == "a"


@pytest.mark.parametrize(("uses", "stays"), [(0, ""), (1, "b"), (2, "ab")])
def test_there_are_many_uses_once_there_are_more_than_the_rule_says(uses: int, stays: str) -> None:
    assert left(*used("a", 400), *used("b", 400), *LATER, uses=uses) == stays


@pytest.mark.parametrize(("keep", "stays"), [(0, ""), (1, "c"), (2, "bc"), (3, "abc"), (4, "abc")])
def test_the_last_ones_are_kept(keep: int, stays: str) -> None:
    history = (*used("a", 400), *used("b", 400), *used("c", 400), *LATER)

    assert left(*history, uses=0, keep=keep) == stays


def test_what_is_still_there_is_counted_anew_after_each_time() -> None:
    history = [message for name in "abcdef" for message in used(name, 400)]

    assert left(*history[:4], said("user"), uses=2) == "ab"
    # The model has not read the last one.
    assert left(*history[:6], said("user"), uses=2) == "c"
    assert left(*history[:8], said("user"), uses=2) == "cd"
    assert left(*history[:10], said("user"), uses=2) == "e"
    assert left(*history, said("user"), uses=2) == "ef"


def test_what_the_model_has_not_answered_to_stays() -> None:
    results = [message for name in "abc" for message in used(name, 400)]

    assert left(*results, uses=0) == "c"
    assert left(said("tool", "a" * 400), uses=0) == "a"
    assert left(*results, *LATER, uses=0) == ""


def test_answer_that_ends_the_history_takes_out_nothing_by_itself() -> None:
    assert left(*used("a", 400), uses=0) == "a"
    assert left(*used("a", 400), said("assistant"), uses=0) == "a"
    assert left(*used("a", 400), said("assistant"), said("user"), uses=0) == ""
    assert cleared(uses=0).messages == ()


@pytest.mark.parametrize(("least", "stays"), [(GAIN // 4, ""), (GAIN // 4 + 1, "a")])
def test_as_much_is_gained_as_the_client_wants_or_nothing_is_taken_out(least: int, stays: str) -> None:
    assert left(*used("a", 400), *LATER, uses=0, least=least) == stays


@pytest.mark.parametrize(("more", "stays"), [(0, ""), (1, "a")])
def test_sixteenth_of_the_tokens_at_which_it_is_due_is_gained_where_the_client_says_nothing(
    more: int, stays: str
) -> None:
    tokens = GAIN // 4 * 16 + 15 + more
    asked = said("user", "x" * 4 * tokens)

    assert left(asked, *used("a", 400), *LATER, tokens=tokens, least=None) == stays


@pytest.mark.parametrize(("more", "stays"), [(0, ""), (1, "a")])
def test_sixteenth_of_the_history_is_gained_where_it_is_due_by_the_number_of_uses(more: int, stays: str) -> None:
    size = (GAIN // 4 * 16 + 16) * 4 - 1 + more
    asked = said("user", "x" * (size - 402))

    assert left(asked, *used("a", 400), *LATER, uses=0, least=None) == stays


@pytest.mark.parametrize(("more", "stays"), [(0, "a"), (1, "")])
def test_result_that_is_not_longer_than_what_replaces_it_stays(more: int, stays: str) -> None:
    assert left(*used("a", len(CLEARED) + more), *LATER, uses=0) == stays


def test_gains_of_several_add_up_until_they_are_enough() -> None:
    history = (*used("a", 400), *used("b", 400), *used("c", 400), *LATER)

    assert left(*history[:2], *LATER, uses=0, least=2 * GAIN // 4) == "a"
    assert left(*history, uses=0, least=2 * GAIN // 4) == "c"
    # What the first two gained is spent: the third alone is not enough.
    assert cleared(*history, uses=0, least=2 * GAIN // 4).uses == 2
    assert left(*used("a", 400), *used("b", 399), *LATER, uses=0, least=GAIN // 4) == "b"
    assert left(*used("a", 400), *used("b", 400), *LATER, uses=0, least=GAIN // 4) == ""


def test_what_was_taken_out_no_longer_makes_the_history_long() -> None:
    history = [message for name in "abc" for message in used(name, 400)]

    # Behind b there are 804 characters; without a, c makes them more than 800 again.
    assert left(*history[:4], said("user"), tokens=200) == "b"
    assert left(*history[:4], *LATER, tokens=200) == "b"
    assert left(*history, said("user"), tokens=200) == "c"


def test_it_is_said_how_many_were_taken_out_and_roughly_what_that_gained() -> None:
    history = (*used("a", 400), *used("b", 300), *LATER)

    assert (found := cleared(*history, uses=0)).uses == 2
    assert found.tokens == (700 - 2 * len(CLEARED)) // 4
    assert cleared(*used("a", len(CLEARED) + 11), *LATER, uses=0).tokens == 2
    assert cleared(*history, uses=5) == ClearedHistory(history) == ClearedHistory(history, 0, 0)


def test_only_contents_change_and_only_in_copies() -> None:
    history = (said("user", "x"), *used("a", 400, '{"x": 1}'), said("assistant", "y"), said("user", "z"))
    before = repr(history)

    found = cleared(*history, uses=0)

    assert list(found.messages) == [*history[:2], {**history[2], "content": CLEARED}, *history[3:]]
    assert repr(history) == before


@pytest.mark.parametrize(("inputs", "emptied"), [(True, "ab"), (False, ""), (frozenset({"dig"}), "b")])
def test_arguments_are_taken_out_of_all_calls_or_of_those_of_some_tools(inputs: Any, emptied: str) -> None:
    both = [call("a", '{"x": 1}'), call("b", '{"x": 2}', "dig"), call("c", '{"x": 3}')]
    history = (
        said("assistant", tool_calls=both),
        *(said("tool", name * 400, tool_call_id=name) for name in "ab"),
        *LATER,
    )
    before = repr(history)

    found = cleared(*history, uses=0, inputs=inputs)

    calls = found.messages[0]["tool_calls"]
    assert "".join(each["id"] for each in calls if each["function"]["arguments"] == "{}") == emptied
    assert [{**each, "function": {**each["function"], "arguments": ""}} for each in calls] == [
        {**each, "function": {**each["function"], "arguments": ""}} for each in both
    ]
    assert found.tokens == (2 * GAIN + 6 * len(emptied)) // 4
    assert repr(history) == before


def test_arguments_count_towards_what_is_gained() -> None:
    arguments = "y" * 100
    history = (*used("a", len(CLEARED), arguments), *LATER)

    assert cleared(*history, uses=0, inputs=True).tokens == 98 // 4
    assert cleared(*history, uses=0, inputs=True, least=98 // 4).uses == 1
    assert cleared(*history, uses=0, inputs=True, least=98 // 4 + 1).uses == 0
    assert cleared(*history, uses=0).uses == 0


@pytest.mark.parametrize("inputs", [True, frozenset({""})])
def test_result_without_a_call_is_taken_out_alone(inputs: Any) -> None:
    history = (said("tool", "a" * 400), said("tool", "b" * 400, tool_call_id="unknown"), *LATER)

    assert left(*history, uses=0, inputs=inputs) == ""


def test_results_of_excluded_tools_stay_and_do_not_count() -> None:
    history = (*used("a", 400, tool="dig"), *used("b", 400), *LATER)

    assert left(*history, uses=1, excluded=frozenset({"dig"})) == "ab"
    assert left(*history, uses=0, excluded=frozenset({"dig"})) == "a"
    assert left(*history, uses=1) == "b"


def test_unless_a_client_says_otherwise_three_results_stay_and_the_rest_goes_from_100_000_tokens_on() -> None:
    names = "abcdefgh"
    history = [message for name in names for message in used(name, 100_000)]

    found = with_cleared_results([*history[:8], said("user")], Clearing())
    # 400,008 characters behind d.
    assert [message["content"][:1] for message in found.messages if message["role"] == "tool"] == ["[", *"bcd"]
    assert with_cleared_results([*history[:6], said("user")], Clearing()).uses == 0


# A summary.


def kept(handle: str, shape: str = "text", tokens: int = 12345) -> KeptResult:
    return KeptResult(handle, "ann", "look", "map", tokens, (), b"", shape)


READ_ON = (
    "These results were too long to show and are still kept whole. Read on in one by its handle with "
    "codec_read_result, or find words in it with codec_search_result:"
)


def test_summary_stands_between_its_words_and_what_is_quoted_behind_it() -> None:
    assert summary_text("They talked.", "") == f"{HEAD}\n\nThey talked."
    assert summary_text("They talked.", "Behind.") == f"{HEAD}\n\nThey talked.\n\nBehind."
    assert summary_text("They talked.", "Behind.", [kept("r1")]) == (
        f"{HEAD}\n\nThey talked.\n\n{READ_ON}\n- r1: 12,345 tokens of look; text\n\nBehind."
    )


@pytest.mark.parametrize(("length", "end"), [(120, ""), (121, "...")])
def test_long_shape_of_a_kept_result_is_cut(length: int, end: str) -> None:
    text = summary_text("S", "", [kept("r1", "x" * length)])

    assert text.endswith(f"; {'x' * 120}{end}")


@pytest.mark.parametrize(
    ("count", "more"), [(16, []), (17, ["- 1 older ones: a call with the handle 'list' names them"])]
)
def test_last_16_kept_results_are_named_and_the_others_counted(count: int, more: list[str]) -> None:
    lines = summary_text("S", "", [kept(f"r{number}") for number in range(count)]).splitlines()[5:]

    assert lines == [f"- r{number}: 12,345 tokens of look; text" for number in range(count - 16, count)] + more


@each_of(
    ("messages", "words"),
    [
        ([], ""),
        ([said("assistant", "yes")], ""),
        ([said("user", "one"), said("assistant", "yes"), said("user", "two")], "two"),
        ([said("user", "one"), said("user", "more"), said("assistant", "yes")], "one\n\nmore"),
        ([said("user", "one"), said("assistant"), said("tool", "r"), said("assistant", "yes")], "one"),
        # Words beside results are reminders, except for the last.
        ([said("user", "one"), said("tool", "r"), said("user", "remember"), said("assistant", "yes")], "one"),
        ([said("user", "one"), said("tool", "r"), said("user", "remember")], "one\n\nremember"),
        (
            [
                *(said("user", "one"), said("tool", "r"), said("user", "first")),
                *(said("tool", "r"), said("user", "second"), said("tool", "r"), said("user", "third")),
            ],
            "third",
        ),
        (
            [said("user", "one"), said("tool", "r"), said("user", "first"), said("tool", "r"), said("user", "second")],
            None,
        ),
        ([said("tool", "r"), said("user", "remember"), said("assistant", "yes")], ""),
    ],
)
def test_last_words_are_what_the_user_asked_last(messages: list[dict[str, Any]], words: str | None) -> None:
    expected = "one\n\nsecond" if words is None else words

    assert last_words(messages, 100) == (f"{LAST}\n\n{expected}" if expected else "")


@pytest.mark.parametrize(("size", "end"), [(5, ""), (6, " [...]")])
def test_long_words_are_cut(size: int, end: str) -> None:
    assert last_words([said("user", "x" * size)], 5) == f"{LAST}\n\nxxxxx{end}"


def test_of_an_earlier_summary_only_the_users_words_are_quoted() -> None:
    earlier = summary_text("They talked.", last_words([said("user", "one")], 9))

    assert last_words([said("user", earlier), said("assistant", "yes")], 9) == f"{LAST}\n\none"
    assert last_words([said("user", summary_text("They talked.", ""))], 9) == ""


def test_behind_a_summary_all_that_it_does_not_cover_is_quoted_the_users_words_last() -> None:
    calls = [call("a", '{"x": 1}'), call("b", tool="dig")]
    rest = [
        *(said("system", "secret"), said("user", "one"), said("assistant", "Let me see.", tool_calls=calls)),
        *(said("tool", "sun"), said("assistant", None, tool_calls=calls[1:]), said("user", "two")),
    ]

    assert words_behind(rest) == "\n\n".join(
        [
            "Let me see.",
            'You called look with {"x": 1}',
            "You called dig with {}",
            "The result of the call:",
            "sun",
            "You called dig with {}",
            LAST,
            "one",
            "two",
        ]
    )
    assert words_behind([]) == ""


def test_instruction_follows_the_users_own_words_or_is_a_message() -> None:
    asked, answered = said("user", "one", name="ann"), said("assistant", "yes")

    assert with_instruction([answered, asked], INSTRUCTION) == [
        answered,
        said("user", f"one\n\n{INSTRUCTION}", name="ann"),
    ]
    assert with_instruction([asked, answered], "Sum up.") == [asked, answered, said("user", "Sum up.")]


def test_behind_a_summary_the_system_still_speaks_first() -> None:
    messages = [said("system", "A"), said("developer", "B"), said("user", "one"), said("system", "C")]
    told = f"{HEAD}\n\nThey talked."
    last = said("user", told, **{SUMMARY: told})

    assert after_summary(messages, told) == [messages[0], messages[1], messages[3], last]
    assert after_summary(messages[2:3], "They talked.") == [last]
    assert after_summary(messages[:1], told, ["look"], ["A", "kept"]) == [
        *(messages[0], said("system", "kept"), {**last, FOUND_TOOLS: ("look",)})
    ]


def test_words_behind_a_summary_join_it_and_others_do_not() -> None:
    summary = said("user", f"{HEAD}\n\nThey talked.")
    messages = [summary]

    assert not add_message(messages, said("user", "And?"))
    assert messages == [said("user", f"{HEAD}\n\nThey talked.\n\nAnd?")]
    assert summary["content"] == f"{HEAD}\n\nThey talked."
    assert add_message(messages, said("assistant", "yes"))
    assert add_message(messages, said("user", "And?"))
    assert [message["content"] for message in messages[1:]] == ["yes", "And?"]
    assert add_message([], said("user", "first"))


def test_summary_is_known_by_its_beginning_and_by_who_says_it() -> None:
    assert is_summary(said("user", f"{HEAD}\n\nThey talked."))
    assert not is_summary(said("user", f" {HEAD}"))
    assert not is_summary(said("assistant", HEAD))
