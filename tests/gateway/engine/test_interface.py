"""What is said of an engine and of a generation where nothing else is, and figures that an engine made up."""

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.interface import (
    Activity,
    Capabilities,
    EngineFacts,
    Generated,
    GenerateRequest,
    GenerationEnd,
    Timings,
    shared_prefix,
)
from tests.cases import each_of

IDS = st.lists(st.integers(0, 1), max_size=12)


def timings(processed: int, cached: int) -> Timings:
    return Timings(processed, cached, 3, 0.1, 0.2)


def test_engine_of_which_nothing_is_known_is_a_llama_cpp_server_with_a_dense_model() -> None:
    can = Capabilities()

    assert (can.lazy_grammar, can.plain_tokenize, can.shows_template) == (True, True, True)
    assert (can.salts, can.sessions, can.retention) == (False, False, False)
    assert (can.reuse_block, can.rewind) == (1, "anywhere")
    facts = EngineFacts("m", None, "", supports_tools=True, vocabulary=None, context=9, slots=1, bos=())
    assert (facts.supports_calls, facts.api, facts.can) == (False, "llama_cpp", can)
    assert not Activity(()).prefills


def test_plain_generation_reuses_what_there_is_and_reports_nothing_more_than_ids() -> None:
    request = GenerateRequest([1], None, 9)

    assert (request.reuse, request.gather, request.logprobs, request.top_logprobs) == (True, False, False, 0)
    assert not Generated((1,)).guessed
    end = GenerationEnd("stop", 1, timings(1, 0))
    assert (end.reported, end.repaired, end.ambiguous, end.missed, end.padded) == (True, 0, 0, 0, 0)


def test_end_that_was_not_reported_has_no_figures() -> None:
    end = GenerationEnd.unreported(7)

    assert (end.reason, end.ended_by, end.reported) == ("length", None, False)
    assert {field.name: getattr(end.timings, field.name) for field in fields(Timings)} == {
        "prompt_n": 0,
        "cache_n": 0,
        "generated_n": 7,
        "prompt_seconds": 0,
        "generate_seconds": 0,
    }


@each_of(
    ("told", "shown"),
    [
        ((10, 40), (10, 40)),
        ((0, 50), (0, 50)),
        ((0, 40), (0, 40)),
        ((50, 0), (50, 0)),
        ((11, 40), (10, 40)),
        ((-1, 40), (10, 40)),
        ((10, 60), (0, 50)),
        ((10, -1), (50, 0)),
        ((60, -1), (50, 0)),
    ],
)
def test_no_more_ids_are_counted_than_the_prompt_has(told: tuple[int, int], shown: tuple[int, int]) -> None:
    within = timings(*told).within(50)

    assert (within.prompt_n, within.cache_n, within.generated_n) == (*shown, 3)
    assert (within == timings(*told)) is (told == shown)


def test_reused_ids_can_be_counted_as_processed() -> None:
    assert timings(10, 40).counting(15) == timings(25, 25)


@given(IDS, IDS)
def test_common_prefix_is_the_longest_beginning_that_both_have(one: list[int], other: list[int]) -> None:
    lengths = [size for size in range(min(len(one), len(other)) + 1) if one[:size] == other[:size]]

    assert shared_prefix(one, other) == max(lengths)
    assert shared_prefix("".join(map(str, one)), "".join(map(str, other))) == max(lengths)
