"""The JSON of a llama.cpp server: what is asked of it, and what its answers are taken to say."""

from typing import Any

import pytest

from gateway.engine.interface import Activity, GenerateRequest, Sampling
from gateway.engine.wire.llama_cpp_json import (
    activity_of,
    completion_body,
    probabilities_of,
    read_facts,
    slot_of,
    tops_of,
)
from gateway.toolcalls.formats.format import CallTrigger
from tests.gateway.engine.engines import marker_of

IDLE = {"id": 0, "is_processing": False}


def busy(number: int, processed: object, generated: object, **more: Any) -> dict[str, Any]:
    figures = {"n_prompt_tokens_processed": processed, "next_token": [{"n_decoded": generated}]}
    return {"id": number, "id_task": 7, "is_processing": True, **figures, **more}


@pytest.mark.parametrize(
    ("slots", "activity"),
    [
        ([], None),
        ([IDLE], None),
        ([busy(1, 5, 3)], Activity(((1, 7, 5, 3),), prefills=False)),
        ([busy(1, 5, 3, next_token={"n_decoded": 3})], Activity(((1, 7, 5, 3),), prefills=False)),
        (
            [{"id": 0, "is_processing": False}, busy(1, 5, 0), busy(2, 9, 1)],
            Activity(((1, 7, 5, 0), (2, 7, 9, 1)), True),
        ),
        ([busy(0, 5, 3), busy(1, None, 3)], None),
        ([busy(0, 5, 3), busy(1, 5, True)], None),
    ],
)
def test_activity_is_that_of_busy_slots_and_unknown_where_one_tells_less(
    slots: list[dict[str, Any]], activity: Activity | None
) -> None:
    assert activity_of(slots) == activity


def test_request_without_wishes_asks_for_ids_only() -> None:
    assert completion_body(GenerateRequest((1, 2), None, 3)) == {
        "prompt": [1, 2],
        "n_predict": 3,
        "stream": True,
        "return_tokens": True,
        "cache_prompt": True,
    }


def test_each_wish_of_a_request_is_asked_for() -> None:
    sampling = Sampling(temperature=0, top_k=4, seed=0, logit_bias=((5, -1.5),))
    request = GenerateRequest((1,), 0, 3, sampling, logprobs=True, grammar="root ::= x", reuse=False)
    body = completion_body(request)

    assert body["id_slot"] == 0
    assert body["cache_prompt"] is False
    assert (body["temperature"], body["top_k"], body["seed"], body["logit_bias"]) == (0, 4, 0, [[5, -1.5]])
    assert (body["n_probs"], body["grammar"]) == (1, "root ::= x")
    assert not {"top_p", "min_p", "grammar_lazy"} & body.keys()
    assert completion_body(GenerateRequest((1,), None, 3, logprobs=True, top_logprobs=5))["n_probs"] == 5


def test_call_begins_the_grammar_by_its_token_and_its_text_stays_in_the_stream() -> None:
    triggers = (CallTrigger("<tool_call>", 7), CallTrigger("<call>", 9))
    body = completion_body(GenerateRequest((1,), None, 3, grammar="root ::= x", triggers=triggers))

    assert body["grammar_lazy"] is True
    # A number that llama.cpp does not know would crash its server.
    assert body["grammar_triggers"] == [
        {"type": 0, "value": "<tool_call>", "token": 7},
        {"type": 0, "value": "<call>", "token": 9},
    ]
    assert body["preserved_tokens"] == ["<tool_call>", "<call>"]


def test_probabilities_belong_to_the_last_ids_of_a_message_and_to_no_other_id() -> None:
    def told(*ids: int) -> dict[str, Any]:
        return {"completion_probabilities": [{"id": each, "logprob": -each} for each in ids]}

    def read(message: dict[str, Any], *ids: int) -> list[object]:
        return [entry.get("logprob") for entry in probabilities_of(message, ids)]

    assert read(told(1, 2), 1, 2) == [-1, -2]
    assert read(told(2, 3), 1, 2, 3) == [None, -2, -3]
    assert read(told(9, 3), 1, 2, 3) == [None, None, -3]
    assert read({}, 1) == [None]
    earlier = {"id": 3, "logprob": -9}
    assert read({"completion_probabilities": [earlier, {"id": 3, "logprob": -3}]}, 3) == [-3]


def test_alternatives_are_told_as_the_engine_reports_them() -> None:
    entry = {"top_logprobs": [{"id": 3, "logprob": -0.5}, {"id": "x"}, 7]}

    assert list(tops_of(entry)) == [(3, -0.5), ("x", None), (None, None)]


@pytest.mark.parametrize(
    ("slot", "number"), [(0, 0), (4095, 4095), (4096, None), (-1, None), (True, None), ("1", None), (None, None)]
)
def test_slot_that_no_engine_has_is_not_believed(slot: object, number: int | None) -> None:
    assert slot_of({"id_slot": slot}) == number


def test_facts_are_what_the_answers_say() -> None:
    caps = {"supports_tools": True, "supports_tool_calls": True}
    props = {
        "model_path": "/models/a.gguf",
        "chat_template": "{{ x }}",
        "chat_template_caps": caps,
        "default_generation_settings": {"n_ctx": 2**31},
        "total_slots": 4096,
        "media_marker": marker_of("1"),
    }
    models = {"data": [{"id": "/models/a.gguf", "meta": {"n_vocab": 0, "n_ctx": 5}}]}
    facts = read_facts(props, models, {"tokens": [0, 7]})

    assert (facts.model_path, facts.chat_template, facts.start_marker) == ("/models/a.gguf", "{{ x }}", marker_of("1"))
    assert (facts.supports_tools, facts.supports_calls) == (True, True)
    assert (facts.vocabulary, facts.context, facts.slots, facts.bos) == (0, 2**31, 4096, (0, 7))


@pytest.mark.parametrize("marker", ["<__media__>", "[img-1]", 7, None])
def test_marker_that_is_the_same_at_each_start_tells_no_start_from_another(marker: object) -> None:
    assert read_facts({"media_marker": marker}, {}, {"tokens": []}).start_marker is None


def test_facts_that_are_missing_have_the_least_meaning() -> None:
    facts = read_facts({}, {}, {"tokens": []})

    assert (facts.model, facts.chat_template, facts.supports_tools, facts.supports_calls) == ("model", "", False, False)
    assert (facts.vocabulary, facts.context, facts.slots, facts.bos) == (None, 0, 1, ())


@pytest.mark.parametrize(
    ("props", "models"),
    [
        ({"default_generation_settings": {"n_ctx": 2**31 + 1}}, {}),
        ({"total_slots": 4097}, {}),
        ({"total_slots": -1}, {}),
        ({}, {"data": [{"meta": {"n_vocab": -1}}]}),
    ],
)
def test_figures_that_no_engine_has_are_refused(props: dict[str, Any], models: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not an integer from"):
        read_facts(props, models, {"tokens": []})
