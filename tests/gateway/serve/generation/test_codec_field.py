"""What the key `codec` of an answer shows, and ids with their log probabilities."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.agent.events import Compacted, GenerationFinished, KeptFigures, TokenLogprob, ToolFinished
from gateway.context.memory import Miss, RequestFigures
from gateway.engine.interface import Timings
from gateway.serve.generation.codec_field import Account, logprob_entry, prompt_figures, turn_numbers
from gateway.toolcalls.stream.output_events import Diagnostic

TIMINGS = Timings(prompt_n=30, cache_n=61, generated_n=5, prompt_seconds=0.1, generate_seconds=0.2)
TURN = GenerationFinished(100, 5, 4, 2, 11, 70, TIMINGS, 0.251234, guessed=False, prefilled=6)
RAN = ToolFinished("c0", "up__say", "{}", "It is 42.", "leaf", 4, 3, is_error=False, seconds=0.01234567)
SHOWN: dict[str, Any] = {
    "call_id": "c0",
    "name": "up__say",
    "arguments": "{}",
    "text": "It is 42.",
    "source": "leaf",
    "ids": 7,
    "is_error": False,
    "seconds": 0.012346,
}


def test_turn_is_shown_in_ids_and_milliseconds() -> None:
    assert turn_numbers(TURN) == {
        "generated": 5,
        "reinjected": {"leaf": 4, "shim": 2},
        "scaffold": 11,
        "held": 70,
        "cache_n": 61,
        "prompt_n": 30,
        "prefilled": 6,
        "reuse": 0.8714,
        "ttft_ms": 251.23,
        "guessed": False,
    }


def test_turn_that_moved_to_another_engine_says_so() -> None:
    assert turn_numbers(replace(TURN, moved=2))["moved"] == 2


def test_turn_without_timings_has_no_figures_of_the_cache() -> None:
    told = turn_numbers(replace(TURN, timings=None))

    assert (told["cache_n"], told["prompt_n"], told["reuse"]) == (None, None, None)


def test_result_of_a_tool_is_shown_as_it_is_added_and_again_in_the_whole_account() -> None:
    account = Account()

    assert account.add_result(RAN) == SHOWN
    assert account.codec() == {"turns": [], "tool_results": [SHOWN]}


def test_result_that_was_kept_or_made_shorter_says_so() -> None:
    told = Account().add_result(replace(RAN, kept=KeptFigures("r1", 900, 200), saved=12))

    assert told == {**SHOWN, "kept": {"handle": "r1", "tokens": 900, "shown": 200}, "saved_tokens": 12}


@pytest.mark.parametrize(("length", "rest"), [(4000, ""), (4001, "… (1 more characters)")])
def test_text_of_a_result_is_shown_up_to_4000_characters(length: int, rest: str) -> None:
    told = Account().add_result(replace(RAN, said="x" * length))

    assert told["text"] == "x" * 4000 + rest


def test_account_holds_what_was_added_and_names_the_fields_without_effect() -> None:
    account = Account(["user"])
    figures = RequestFigures(prompt=100, cached=61)
    account.add(TURN)
    account.add(figures)
    account.add(Compacted("", (), (), prompt_ids=50, cached_ids=40, completion_ids=9, ends=False))
    account.add(Diagnostic("truncated", "the stream ended inside a call", 1))

    assert account.codec() == {
        "turns": [turn_numbers(TURN)],
        "tool_results": [],
        "prompt": figures.counts,
        "compaction": {"prompt": 50, "cached": 40, "summary": 9},
        "ignored": ["user"],
        "diagnostics": [{"kind": "truncated", "message": "the stream ended inside a call", "index": 1}],
    }


def test_prompt_says_why_tokens_were_lost_and_what_its_client_changed() -> None:
    whole = RequestFigures(prompt=100, cached=61)
    changed = replace(
        whole, reason="client_changed", recall_miss=Miss("client_changed", message=2, at=7, was="a", now="b")
    )
    lost = replace(whole, reason="client_changed", recall_miss=Miss("client_changed", results_lost=True))

    assert prompt_figures(whole) == whole.counts
    assert prompt_figures(changed) == {
        **whole.counts,
        "reason": "client_changed",
        "message": 2,
        "at": 7,
        "was": "a",
        "now": "b",
    }
    assert prompt_figures(lost) == {**whole.counts, "reason": "client_changed", "results_lost": True}


def test_log_probability_stands_with_its_token_and_one_that_is_missing_is_openai_s_lowest() -> None:
    spelled = {1: b"a", 2: b"\xc3"}
    entry = logprob_entry(TokenLogprob(1, -0.5, ((1, -0.5), (2, -3.0))), spelled.__getitem__)
    none = logprob_entry(TokenLogprob(2, None, ()), spelled.__getitem__)

    first = {"token": "a", "logprob": -0.5, "bytes": [97]}
    other = {"token": "\ufffd", "logprob": -3.0, "bytes": [0xC3]}
    assert entry == {**first, "top_logprobs": [first, other]}
    assert none == {**other, "logprob": -9999.0, "top_logprobs": []}
