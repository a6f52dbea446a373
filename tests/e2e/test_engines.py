"""The agent's path is the same over every engine: ids that stay exact, tools, forms, keys that are kept apart.

Over a llama.cpp server and over the stand-in that speaks vLLM's wire; `make vllm-check` runs it over the real vLLM.
What an engine reuses in blocks may lose a part of one.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import TokenMap
from tests.e2e.conftest import ENGINE, RunningGateway, key_for
from tests.standins.vllm_wire_over_llama_cpp import ADAPTER, BLOCK, MODEL, POEM

pytestmark = pytest.mark.engine

KINDS = {
    "llama_cpp": ("engine_url", 1),
    "vllm": ("vllm_url", BLOCK),
    "old_vllm": ("old_vllm_url", BLOCK),
}
GREEDY = {"model": "any", "temperature": 0, "seed": 1}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"]},
    },
}
SHAPE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=[ENGINE] if ENGINE.startswith("http") else KINDS)
def engine(request: pytest.FixtureRequest) -> tuple[list[str], int]:
    """The flags of a gateway with an engine, and the ids that this reuses together."""
    if ENGINE.startswith("http"):
        return ["--engine", ENGINE, "--model", str(packaged_model())], 128
    name, block = KINDS[request.param]
    return ["--engine", request.getfixturevalue(name), "--model", str(packaged_model())], block


@pytest.fixture(scope="module")
def gateway(
    engine: tuple[list[str], int],
    tmp_path_factory: pytest.TempPathFactory,
    run_gateway: Callable[..., AbstractContextManager[RunningGateway]],
    says: Callable[..., dict[str, Any]],
    model_map: TokenMap,
) -> Iterator[RunningGateway]:
    """Its tools take no arguments: a model of random weights would end none of free text."""
    text = "It is half past twelve."
    ids = {"map_id": model_map.map_id, "ids": model_map.encode(text)}
    block = {"type": "text", "text": text}
    servers = {"leaf": says({**block, "_meta": {CODEC_META_KEY: ids}}), "plain": says(block)}
    with run_gateway(tmp_path_factory.mktemp("engines"), servers, *engine[0]) as started:
        yield started


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with gateway.client() as client:
        yield client


@pytest.mark.parametrize(("tool", "source"), [("leaf__say", "leaf"), ("plain__say", "shim")])
def test_result_is_spliced_behind_ids_that_the_engine_holds(
    client: openai.OpenAI, engine: tuple[list[str], int], tool: str, source: str
) -> None:
    named: Any = {"type": "function", "function": {"name": tool}}
    asked: Any = [{"role": "user", "content": "What time is it in Paris?"}]
    answer: Any = client.chat.completions.create(messages=asked, tool_choice=named, max_tokens=80, **GREEDY)

    # What the model does with the result is its own affair.
    first, second, *_ = answer.codec["turns"]
    result, *_ = answer.codec["tool_results"]
    assert (result["name"], result["source"], result["is_error"]) == (tool, source, False)
    assert second["reinjected"][source] == result["ids"] > 0
    assert second["held"] == first["prompt_n"] + first["cache_n"] + first["generated"]
    assert second["held"] - engine[1] < second["cache_n"] <= second["held"]


def test_conversation_that_comes_back_has_the_ids_that_it_was_lived_with(
    client: openai.OpenAI, engine: tuple[list[str], int]
) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "The weather in Bern, please, and do not forget Zürich 東京 😀."}
    ]
    ends: list[int] = []
    turns: list[dict[str, Any]] = []
    losses: list[str | None] = []
    for number, choice in enumerate(["none", "required", "none", "none"]):
        answer: Any = client.chat.completions.create(
            model="any",
            messages=messages,
            tools=[TOOL],
            tool_choice=choice,
            max_tokens=48 if choice == "required" else 12,
            temperature=0.8,
            seed=number,
        )
        last = answer.codec["turns"][-1]
        turns.append(answer.codec["turns"][0])
        losses.append(answer.codec.get("prompt", {}).get("reason"))
        ends.append(
            last["cache_n"] + last["prompt_n"] + last["generated"] - (answer.choices[0].finish_reason == "length")
        )
        message = answer.choices[0].message.model_dump(exclude_none=True)
        messages.append({"content": "", **message})
        calls = message.get("tool_calls") or []
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "Sunny, 20 °C"} for call in calls]
        if not calls:
            messages.append({"role": "user", "content": f"And tomorrow? ({number})"})

    assert [turn["held"] for turn in turns[1:]] == ends[:-1]
    assert all(turn["held"] - engine[1] < turn["cache_n"] for turn in turns[1:])
    # A part of a block is no loss that anybody is told of.
    assert losses[1:] == [None] * 3


def test_required_call_has_the_form_of_its_schema(client: openai.OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "What is the weather in Bern?"}]
    answer: Any = client.chat.completions.create(messages=asked, tools=[TOOL], tool_choice="required", **GREEDY)

    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in ("Bern", "Rome")


def test_answer_has_the_form_that_was_asked_for(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "stay", "schema": SHAPE, "strict": True}}
    asked: Any = [{"role": "user", "content": "Three days in Rome."}]
    answer = client.chat.completions.create(
        messages=asked, response_format=form, tool_choice="none", max_tokens=100, **GREEDY
    )

    said = json.loads(answer.choices[0].message.content or "")
    assert said.keys() == {"city", "days"}
    assert 1 <= said["days"] <= 9


def test_streamed_ids_are_told_with_what_they_say(client: openai.OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "Count: one two three"}]
    whole = client.chat.completions.create(messages=asked, tool_choice="none", max_tokens=12, logprobs=True, **GREEDY)
    with client.chat.completions.create(
        messages=asked, tool_choice="none", max_tokens=12, stream=True, **GREEDY
    ) as stream:
        parts = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]

    content = whole.choices[0].logprobs and whole.choices[0].logprobs.content
    assert content
    assert "".join(each.token for each in content) == whole.choices[0].message.content
    assert "".join(parts)


def test_words_of_a_client_end_no_turn(client: openai.OpenAI) -> None:
    def prompt_of(said: str) -> int:
        asked: Any = [{"role": "user", "content": said}]
        answer = client.chat.completions.create(messages=asked, tool_choice="none", max_tokens=1, **GREEDY)
        assert answer.usage is not None
        return answer.usage.prompt_tokens

    # As text it is many ids, as a control token it would be one.
    assert prompt_of("a<|im_end|>a") >= prompt_of("aa") + 4


def test_isolated_keys_of_one_vllm_reuse_nothing_of_each_other(
    engine: tuple[list[str], int],
    tmp_path: Path,
    start_gateway: Callable[..., RunningGateway],
    request: pytest.FixtureRequest,
) -> None:
    if request.node.callspec.params["engine"] == "llama_cpp":
        with pytest.raises(AssertionError, match=r"can't be guaranteed for a llama\.cpp server"):
            start_gateway({}, *engine[0], env={"CODEC_GATEWAY_ENGINE__ISOLATE": "true"})
        return
    ada, eve = (key_for(tmp_path, name) for name in ("ada", "eve"))
    env = {"CODEC_GATEWAY_ENGINE__ISOLATE": "true", "CODEC_GATEWAY_ENGINE__API": "vllm"}
    started = start_gateway({}, *engine[0], env=env)

    def cached(key: str) -> int:
        secret = "The password of the vault behind the blue door is nineteen owls and a lighthouse. " * 12
        body = {**GREEDY, "max_tokens": 1, "messages": [{"role": "user", "content": secret}]}
        answer = httpx2.post(
            f"{started.url}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=240
        ).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    first, second, others, again = cached(ada), cached(ada), cached(eve), cached(eve)
    assert first == others == 0
    assert second == again >= engine[1]


ADAPTERS = """
[engines.base]
url = "{url}"
model = "{model}"

[engines.poet]
url = "{url}"
model = "{model}"
served_model = "poet"
"""


def test_adapters_of_one_server_are_models_of_their_own_names(
    vllm_url: str, start_gateway: Callable[..., RunningGateway], tmp_path: Path
) -> None:
    (tmp_path / "codec-gateway.toml").write_text(ADAPTERS.format(url=vllm_url, model=packaged_model()))
    question: Any = [{"role": "user", "content": "A poem, please."}]
    with start_gateway({}).client() as client:
        listed = {model.id for model in client.models.list()}
        told = {name: client.chat.completions.create(model=name, messages=question, max_tokens=16) for name in listed}

    assert listed == {MODEL, ADAPTER}
    assert {name: answer.model for name, answer in told.items()} == {name: name for name in listed}
    assert [name for name, answer in told.items() if answer.choices[0].message.content == POEM] == [ADAPTER]


def test_model_that_a_server_has_not_is_told_with_those_that_it_has(
    vllm_url: str, start_gateway: Callable[..., RunningGateway], tmp_path: Path
) -> None:
    settings = f'[engine]\nurl = "{vllm_url}"\nmodel = "{packaged_model()}"\nserved_model = "painter"\n'
    (tmp_path / "codec-gateway.toml").write_text(settings)
    gateway = start_gateway({})
    with gateway.client() as client, pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "?"}])

    assert refused.value.status_code == 503
    assert "engine.served_model is 'painter', but the server has 'stand-in', 'poet'" in str(refused.value)
