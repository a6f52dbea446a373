"""Scenes of the Codec reference: frozen, within the ceilings of a run, and the same from the same seed."""

import json

import pytest

from codec_bench.exchange import Asking, Exchange
from codec_bench.plan import MOST_ANSWER, MOST_PROMPT, Plan, check_plan
from codec_bench.presets import PRESETS, Scene

NAMES = list(PRESETS)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_within_the_ceilings_of_a_run_and_asks_the_same_again(name: str) -> None:
    scene, again, other = Scene(name, 3), Scene(name, 3), Scene(name, 4)
    asking = scene.asking(Asking())

    check_plan(Plan(requests=scene.preset.requests), 8, scene.turns, asking.requests_a_turn)
    assert scene.preset.prompt_tokens <= MOST_PROMPT
    assert max(scene.preset.answers) <= MOST_ANSWER
    assert scene.conversation(7) == again.conversation(7) != other.conversation(7)
    assert scene.conversation(7) != scene.conversation(8)
    assert json.loads(json.dumps(scene.described()))["preset"] == name


def test_the_scenes_are_those_of_the_reference() -> None:
    # Frozen: who changes one can no longer compare with what was measured before.
    asked = {name: (each.api, each.prompt_tokens, each.answers, each.tools, each.ids) for name, each in PRESETS.items()}

    assert asked == {
        "formats": ("completions", 32, (64,), False, False),
        "crossover": ("completions", 32, (16, 32, 64, 128, 256, 512, 1024, 2048), False, False),
        "long": ("completions", 32, (4096, 8192), False, False),
        "timed": ("completions", 32, (64, 512, 2048), False, False),
        "handoff-text": ("completions", 1024, (1,), False, False),
        "handoff-ids": ("completions", 1024, (1,), False, True),
        "loop": ("chat", 32, (64,), True, False),
    }


def test_lengths_take_turns_as_often_as_each_other_and_the_shortest_warms_up() -> None:
    scene = Scene("timed", 0)
    asked = [scene.conversation(number).turns[0].answer_tokens for number in range(scene.preset.requests)]

    assert asked == [64, 512, 2048] * 3
    assert [scene.conversation(-1 - number).turns[0].answer_tokens for number in range(4)] == [64] * 4


def test_prompts_of_ids_are_ids_and_begin_otherwise_for_servers_that_share_an_engine() -> None:
    scene = Scene("handoff-ids", 0)
    alike = [Exchange(scene.conversation(1), scene.asking(Asking()), "m", server).next_body() for server in (0, 1)]
    apart = [
        Exchange(scene.conversation(1), scene.asking(Asking(apart=True)), "m", each).next_body() for each in (0, 1)
    ]

    assert alike[0] == alike[1]
    assert len(alike[0]["prompt"]) == 1024
    assert all(type(token) is int and 1000 <= token <= 9999 for token in alike[0]["prompt"])
    assert "messages" not in alike[0]
    assert apart[1]["prompt"][:8] != apart[0]["prompt"][:8]
