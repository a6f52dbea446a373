"""What the judgement of a conversation sees: ids that drift, lost ids, calls that ran twice or were shown."""

from dataclasses import replace
from typing import Any

from tests.clients.judgement import of_engine, of_gateway
from tests.clients.recorder import Exchange, joined


def exchange(
    prompt: list[int], written: list[int], turns: list[tuple[int, int]], messages: tuple[Any, ...] = (), **more: Any
) -> Exchange:
    told = [{"held": held, "cache_n": cached, "prompt_n": len(prompt) - cached} for held, cached in turns]
    codec = {"turns": told, "tool_results": more.get("results", ()), "spliced": more.get("spliced", ())}
    message = {"tool_calls": more.get("calls")}
    answer = {"prompt_token_ids": prompt, "choices": [{"message": message, "token_ids": written}], "codec": codec}
    return Exchange({"messages": list(messages)}, 200, answer)


USER = {"role": "user"}
CALL = {"id": "a", "function": {"name": "forecast"}}
FIRST = exchange([1, 2, 3], [4, 5], [(0, 0)], (USER,), calls=[CALL])
SECOND = exchange([1, 2, 3, 4, 5, 6], [7], [(5, 5)], (USER, USER, {"role": "tool", "tool_call_id": "a"}))


def test_prompt_that_goes_on_from_prompt_and_answer_is_whole() -> None:
    judged = of_gateway([FIRST, SECOND], 0)

    assert judged.is_whole
    assert (judged.requests, judged.turns, judged.whole, judged.processed, judged.faults) == (2, 1, 1, 4, ())


def test_spliced_ids_stand_where_they_were_put() -> None:
    spliced = [{"at": 1, "ids": [8, 9]}]
    first = exchange([1], [4, 5], [(0, 0)], (USER,), spliced=spliced)

    assert of_gateway([first, exchange([1, 4, 8, 9, 5, 6], [], [(5, 5)], (USER, USER))], 0).drift == 0
    assert of_gateway([first, exchange([1, 4, 5, 8, 9, 6], [], [(5, 5)], (USER, USER))], 0).drift == 3


def test_ids_that_differ_or_are_missing_are_drift() -> None:
    other = exchange([1, 2, 3, 4, 0, 6], [], [(5, 5)], (USER, USER))
    shorter = exchange([1, 2, 3], [], [(5, 5)], (USER, USER))

    assert [of_gateway([FIRST, each], 0).drift for each in (other, shorter)] == [1, 2]


def test_ids_that_were_held_and_processed_are_told_and_no_turn_that_held_nothing_is_whole() -> None:
    lost = of_gateway([FIRST, exchange([1, 2, 3, 4, 5, 6], [], [(5, 3)], (USER, USER))], 0)
    unknown = of_gateway([FIRST, exchange([1, 2, 3, 4, 5, 6], [], [(0, 0)], (USER, USER))], 0)

    assert (lost.whole, lost.again, lost.is_whole) == (0, 2, False)
    assert (unknown.whole, unknown.is_whole) == (0, False)


def test_call_of_the_gateway_that_ran_twice_was_shown_or_was_answered_by_the_client_is_a_fault() -> None:
    ran = {"name": "clock", "is_error": False}
    told = exchange([1], [], [(0, 0)], (USER,), results=[ran])
    shown = exchange([1], [], [(0, 0)], (USER,), calls=[{"id": "b", "function": {"name": "clock"}}])
    answered = exchange([1], [], [(0, 0)], (USER, {"role": "tool", "tool_call_id": "b"}))

    assert of_gateway([told], 1).faults == ()
    assert of_gateway([told], 2).faults == ("clock was called 1 times by the model, and ran 2 times",)
    assert of_gateway([shown], 0).faults == ("answer 1 shows a call that the gateway has run",)
    assert "a call that was not shown" in of_gateway([answered], 0).faults[0]


def test_error_and_a_history_that_shrinks_are_faults() -> None:
    failed = replace(FIRST, status=503, answer={"error": "away"})

    assert of_gateway([failed], 0).faults == ("request 1 was answered with 503: away",)
    assert of_gateway([SECOND, FIRST], 0).faults[-1] == (
        "the messages of a request are fewer than those of the one before"
    )


def test_llama_cpp_s_timings_say_what_it_found_of_the_answer_before() -> None:
    timings = [
        {"cache_n": 0, "prompt_n": 10, "predicted_n": 5},
        {"cache_n": 14, "prompt_n": 6, "predicted_n": 2},
        {"cache_n": 18, "prompt_n": 9, "predicted_n": 2},
    ]
    answers = [{"timings": each, "choices": [{"message": {}}]} for each in timings]
    judged = of_engine([Exchange({"messages": [USER] * n}, 200, each) for n, each in enumerate(answers, 1)])

    assert (judged.turns, judged.whole, judged.again, judged.processed) == (2, 1, 3, 25)


def test_chunks_of_a_stream_come_to_the_whole_answer() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "forecast"}}
    rest = {"index": 0, "function": {"arguments": "{}"}}
    last = {"turns": [{"held": 0}], "tool_results": [], "spliced": [{"at": 1, "ids": [9]}]}
    chunks = [
        {"choices": [{"delta": {"content": ""}}], "prompt_token_ids": [1, 2]},
        {"choices": [{"delta": {"tool_calls": [first]}, "token_ids": [3]}]},
        {"choices": [{"delta": {}, "token_ids": []}], "codec": {"spliced": [{"at": 1, "ids": [9]}]}},
        {"choices": [{"delta": {"tool_calls": [rest]}, "token_ids": [4, 5]}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "codec": last},
        {"choices": [], "usage": {"total_tokens": 5}},
    ]

    answer = joined(chunks)

    assert answer["prompt_token_ids"] == [1, 2]
    assert answer["choices"][0]["token_ids"] == [3, 4, 5]
    assert answer["choices"][0]["message"]["tool_calls"] == [first]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["codec"] == {**last, "spliced": [{"at": 1, "ids": [9]}]}
    assert answer["usage"] == {"total_tokens": 5}
