"""The figures of a request are sums of those of its generations, and never say more than was measured."""

from dataclasses import replace

import pytest

from gateway.agent.events import GenerationFinished
from gateway.agent.figures import Reuse, figures_of, reused_share
from gateway.context.memory import ContextChange
from gateway.engine.interface import Timings

FIRST = GenerationFinished(
    prompt=100,
    generated=11,
    reinjected_leaf=0,
    reinjected_shim=0,
    scaffold=0,
    held=0,
    timings=Timings(prompt_n=40, cache_n=60, generated_n=11, prompt_seconds=1.0, generate_seconds=2.0),
    ttft=0.1,
    guessed=False,
)
SECOND = replace(
    FIRST,
    prompt=150,
    timings=Timings(prompt_n=10, cache_n=140, generated_n=6, prompt_seconds=1.0, generate_seconds=1.0),
)
CUT = replace(FIRST, prompt=200, timings=None)


def test_request_whose_engine_reported_nothing_of_its_first_generation_has_no_figures() -> None:
    assert figures_of([], Reuse()) is None
    assert figures_of([CUT, SECOND], Reuse()) is None


def test_prompts_and_cached_tokens_are_summed_and_the_speed_leaves_out_each_first_token() -> None:
    figures = figures_of([FIRST, SECOND, CUT], Reuse(held=60), (ContextChange("loaded", 5, 1),))

    assert figures is not None
    assert (figures.prompt, figures.cached, figures.tokens_per_second) == (450, 200, 15 / 3)
    assert (figures.held, figures.reused, figures.recomputed, figures.reason) == (60, 60, 0, None)
    assert figures.changes == (ContextChange("loaded", 5, 1),)


@pytest.mark.parametrize("timings", [{"generated_n": 1}, {"generated_n": 0}, {"generate_seconds": 0.0}])
def test_generation_of_one_token_or_of_no_time_has_no_speed(timings: dict[str, int]) -> None:
    assert FIRST.timings is not None
    figures = figures_of([replace(FIRST, timings=replace(FIRST.timings, **timings))], Reuse())

    assert figures is not None
    assert figures.tokens_per_second is None


@pytest.mark.parametrize(
    ("reuse", "reused", "recomputed"),
    [
        (Reuse(held=80, reason="slot_taken"), 60, 20),
        # No more than this prompt processed: it is shorter than what was cached.
        (Reuse(held=500, reason="template_rewrote"), 60, 40),
        # A cache may hold more of the prompt than the conversation had.
        (Reuse(held=50, reason="slot_taken"), 50, 0),
        (Reuse(held=80), 60, 0),
    ],
)
def test_recomputed_is_what_was_cached_and_is_processed_again_for_a_reason(
    reuse: Reuse, reused: int, recomputed: int
) -> None:
    figures = figures_of([FIRST], reuse)

    assert figures is not None
    assert (figures.reused, figures.recomputed, figures.reason) == (reused, recomputed, reuse.reason)


@pytest.mark.parametrize(("held", "cached", "share"), [(0, 5, None), (1, 0, 0.0), (10, 5, 0.5), (10, 20, 1.0)])
def test_share_of_the_previous_turn_that_was_reused_is_one_at_most(held: int, cached: int, share: float | None) -> None:
    assert FIRST.timings is not None
    finished = replace(FIRST, held=held, timings=replace(FIRST.timings, cache_n=cached))

    assert reused_share(finished) == share
    assert reused_share(replace(finished, timings=None)) is None
