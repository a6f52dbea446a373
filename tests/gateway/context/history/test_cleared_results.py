"""Results that are taken out of a long history: which, when, and the same ones at each later request."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.context.history.shortening import CLEARED, Clearing, with_cleared_results

RESULT = "x" * 400


def turn(number: int, name: str = "look", result: str = RESULT) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": json.dumps({"at": "y" * 100})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": f"{number} {result}"},
    ]


def history(*turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "Look."}, *(message for each in turns for message in each)]


def left(cleared: Any) -> list[str]:
    return [
        each["content"].split()[0] for each in cleared.messages if each["role"] == "tool" and each["content"] != CLEARED
    ]


def test_nothing_is_taken_out_below_the_trigger_and_the_messages_are_those_that_came():
    given_ = history(*map(turn, range(5)))

    assert with_cleared_results(given_, Clearing(tokens=2000)).messages is given_


def test_the_last_ones_stay_and_those_of_excluded_tools():
    given_ = history(turn(0), turn(1, "keep"), turn(2), turn(3))

    assert left(with_cleared_results(given_, Clearing(tokens=200, keep=1, excluded=frozenset({"keep"})))) == ["1", "3"]


def test_what_the_model_has_not_read_stays_where_the_client_keeps_none():
    assert left(with_cleared_results(history(turn(0), turn(1)), Clearing(tokens=100, keep=0))) == ["1"]


def test_parallel_results_that_are_new_stay_although_they_are_more_than_are_kept():
    calls = [{"id": f"c{n}", "function": {"name": "look", "arguments": "{}"}} for n in range(5)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} {RESULT}"} for n in range(5)]
    given_ = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": "", "tool_calls": calls}, *results]

    assert with_cleared_results(given_, Clearing(tokens=100, keep=1)).uses == 0
    assert left(
        with_cleared_results(
            [*given_, {"role": "assistant", "content": "a"}, *given_[:1]], Clearing(tokens=100, keep=1)
        )
    ) == ["4"]


def test_long_histories_take_time_that_grows_with_their_length_only():
    class Counting(str):
        looked = 0

        def __len__(self) -> int:
            Counting.looked += 1
            return super().__len__()

    looks: list[int] = []
    for count in (200, 400):
        Counting.looked = 0
        messages = history(*(turn(n) for n in range(count)))
        for message in messages:
            message["content"] = Counting(message["content"])
        with_cleared_results(messages, Clearing(tokens=100, keep=3, least=10**9, inputs=True))
        looks.append(Counting.looked)
    assert looks[1] <= 2 * looks[0] + 10


def test_little_is_not_worth_it():
    given_ = history(*map(turn, range(4)))

    assert with_cleared_results(given_, Clearing(tokens=100, keep=3, least=500)).uses == 0
    assert with_cleared_results(given_, Clearing(tokens=100, keep=3, least=50)).uses == 1


def test_arguments_go_too_where_they_are_asked_for():
    given_ = history(turn(0), turn(1, "other"), turn(2))
    rule = Clearing(tokens=100, keep=0, inputs=frozenset({"other"}))
    calls = [m["tool_calls"][0]["function"] for m in with_cleared_results(given_, rule).messages if "tool_calls" in m]

    assert [call["arguments"] == "{}" for call in calls] == [False, True, False]
    assert all(m["tool_calls"][0]["function"]["arguments"] != "{}" for m in given_ if "tool_calls" in m)


def test_results_without_a_call_and_shorter_than_the_words_that_replace_them_are_survived():
    given_ = history([{"role": "tool", "content": "a"}], turn(0, result=""))

    assert with_cleared_results(given_, Clearing(tokens=0, keep=0)).uses == 0


SIZES = st.lists(st.integers(0, 900), max_size=30)


@given(
    SIZES,
    st.integers(0, 600) | st.none(),
    st.integers(0, 6) | st.none(),
    st.integers(0, 4),
    st.integers(0, 100) | st.none(),
    st.booleans(),
)
def test_a_longer_history_begins_with_what_was_left_of_the_shorter_unless_more_is_taken_out(
    sizes, tokens, uses, keep, least, inputs
):
    rule = Clearing(tokens=tokens, uses=uses, keep=keep, least=least, inputs=inputs)
    before, times = with_cleared_results(history(), rule), 0
    for count in range(1, len(sizes) + 1):
        given_ = history(*(turn(n, result="x" * size) for n, size in enumerate(sizes[:count])))
        now = with_cleared_results(given_, rule)
        assert len(now.messages) == len(given_)
        assert now.uses >= before.uses
        if now.uses == before.uses:
            assert list(now.messages[: len(before.messages)]) == list(before.messages)
        times += now.uses > before.uses
        before = now
    if tokens is not None and uses is None and least is None and tokens >= 16 and sizes:
        # Each time pays for itself: it takes out a sixteenth of the tokens at which it is due.
        assert times <= 16 * (sum(sizes) + 200 * len(sizes)) / (4 * tokens) + 1
