"""`POST /v1/chat/completions` as OpenAI's own client sees it: the token loop on a real model, and what is refused."""

import json
import re
from typing import Any

import httpx2
import openai
import pytest

PARIS = [{"role": "user", "content": "What time is it in Paris?"}]
# Asked by nobody else: to another test's question, the same engine may have given the same answer in the same minute.
PARIS_NOW = [{"role": "user", "content": "What time is it in Paris now?"}]
TOKYO = [{"role": "user", "content": "What time is it in Tokyo?"}]
COUNT = [{"role": "user", "content": "Count: one two three"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
        },
    },
}
GREEDY = {"model": "any", "temperature": 0, "seed": 1}


def named(tool: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool}}


def clock_in(text: str) -> str:
    found = re.search(r"\d\d:\d\d", text)
    assert found is not None, text
    return found[0].removeprefix("0")  # once in a while this small model writes 09:57 as 9:57


@pytest.fixture(scope="module")
def site(trained_site):
    return trained_site


@pytest.fixture(scope="module")
def chat(trained_chat):
    return trained_chat


@pytest.fixture(scope="module")
def leaf_answer(chat) -> dict[str, Any]:
    """Answered through the tool that ships ids."""
    answer = chat.chat.completions.create(
        messages=PARIS_NOW, tool_choice=named("time_leaf__get_current_time"), tools=[], **GREEDY
    )
    return answer.model_dump()


@pytest.fixture(scope="module")
def shim_answer(chat) -> dict[str, Any]:
    """Answered through the tool that ships text."""
    answer = chat.chat.completions.create(messages=TOKYO, tool_choice=named("plain_time__get_time"), **GREEDY)
    return answer.model_dump()


JSON = {"content-type": "application/json"}
COUNTERS = ("codec_leaf_bypasses_total", "codec_shim_tokenize_calls_total")


@pytest.fixture(scope="module")
def counted_stream(site, chat, model_map) -> tuple[list[dict[str, Any]], list[float]]:
    """The chunks of a streamed answer through the tool that ships ids, and how far it moved the counters."""

    def counted() -> list[float]:
        return [site.metric(name, map=model_map.map_id) for name in COUNTERS]

    before = counted()
    with chat.chat.completions.create(
        messages=PARIS,
        tool_choice=named("time_leaf__get_current_time"),
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"show_calls": True},
        **GREEDY,
    ) as stream:
        chunks = [chunk.model_dump(exclude_unset=True) for chunk in stream]
    return chunks, [after - was for was, after in zip(before, counted(), strict=True)]


@pytest.fixture(scope="module")
def leaf_stream(counted_stream) -> list[dict[str, Any]]:
    return counted_stream[0]


@pytest.fixture(scope="module")
def weather_call(chat) -> dict[str, Any]:
    """The answer to a question for a tool that the client runs."""
    answer = chat.chat.completions.create(
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],
        tool_choice=named("get_weather"),
        **GREEDY,
    )
    return answer.model_dump(exclude_none=True)


@pytest.mark.parametrize(
    ("made", "source", "tool"),
    [("leaf_answer", "leaf", "time_leaf__get_current_time"), ("shim_answer", "shim", "plain_time__get_time")],
)
def test_answer_says_the_time_that_the_tool_returned(request, made, source, tool):
    answer = request.getfixturevalue(made)

    (choice,) = answer["choices"]
    (result,) = answer["codec"]["tool_results"]
    assert (result["source"], result["name"], result["is_error"]) == (source, tool, False)
    assert clock_in(result["text"]) in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert "<|im_end|>" not in choice["message"]["content"]


@pytest.mark.parametrize("made", ["leaf_answer", "shim_answer"])
def test_second_turn_reuses_every_id_of_the_first(request, made):
    answer = request.getfixturevalue(made)

    first, second = answer["codec"]["turns"]
    (result,) = answer["codec"]["tool_results"]
    assert second["reuse"] == 1.0
    assert second["cache_n"] == second["held"] == first["prompt_n"] + first["cache_n"] + first["generated"]
    assert second["reinjected"][result["source"]] == result["ids"] > 0
    assert second["prompt_n"] == result["ids"] + second["scaffold"]


def test_usage_counts_every_generation_and_what_came_from_the_cache(leaf_answer):
    usage, turns = leaf_answer["usage"], leaf_answer["codec"]["turns"]

    assert usage["prompt_tokens"] == sum(turn["prompt_n"] + turn["cache_n"] for turn in turns)
    assert usage["prompt_tokens_details"]["cached_tokens"] == sum(turn["cache_n"] for turn in turns) > 0
    assert usage["completion_tokens"] == sum(turn["generated"] for turn in turns)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_call_that_the_gateway_has_run_is_no_call_of_the_answer(leaf_answer):
    (result,) = leaf_answer["codec"]["tool_results"]

    assert leaf_answer["choices"][0]["message"]["tool_calls"] is None
    assert (result["name"], json.loads(result["arguments"])) == (
        "time_leaf__get_current_time",
        {"timezone": "Europe/Paris"},
    )


def test_answer_shows_the_call_where_the_request_asks_for_it(chat):
    answer = chat.chat.completions.create(
        messages=PARIS,
        tool_choice=named("time_leaf__get_current_time"),
        extra_body={"show_calls": True},
        **GREEDY,
    ).model_dump()

    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "time_leaf__get_current_time"
    assert answer["codec"]["tool_results"][0]["call_id"] == call["id"]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_streamed_call_begins_with_id_and_name_and_its_fragments_join_to_json(leaf_stream):
    deltas = [call for chunk in leaf_stream for c in chunk["choices"] for call in c["delta"].get("tool_calls") or []]

    head, *rest = deltas
    assert head["id"].startswith("call_")
    assert head["type"] == "function"
    assert head["function"] == {"name": "time_leaf__get_current_time", "arguments": ""}
    assert {delta["index"] for delta in deltas} == {0}
    assert all(set(delta) == {"index", "function"} and set(delta["function"]) == {"arguments"} for delta in rest)
    assert json.loads("".join(delta["function"]["arguments"] for delta in rest)) == {"timezone": "Europe/Paris"}


def test_streamed_answer_ends_with_a_reason_and_then_the_usage(leaf_stream):
    content = "".join(c["delta"].get("content") or "" for chunk in leaf_stream for c in chunk["choices"])
    results = [chunk["codec"]["tool_result"] for chunk in leaf_stream if "tool_result" in chunk.get("codec", {})]
    reasons = [c["finish_reason"] for chunk in leaf_stream for c in chunk["choices"]]

    assert leaf_stream[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert clock_in(results[0]["text"]) in content
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    assert leaf_stream[-1]["choices"] == []
    assert leaf_stream[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert all("usage" not in chunk for chunk in leaf_stream[:-1])
    assert leaf_stream[-2]["codec"]["turns"][1]["reuse"] == 1.0
    assert len({chunk["id"] for chunk in leaf_stream}) == 1


def test_call_of_the_clients_own_tool_goes_to_the_client_and_is_not_run(weather_call):
    (choice,) = weather_call["choices"]

    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"])["city"]
    assert weather_call["codec"]["tool_results"] == []
    assert len(weather_call["codec"]["turns"]) == 1


def test_clients_result_is_answered_in_the_next_request(chat, weather_call):
    message = weather_call["choices"][0]["message"]
    result = {
        "role": "tool",
        "tool_call_id": message["tool_calls"][0]["id"],
        "content": "The weather in Paris is sunny, 21 degrees.",
    }
    question = {"role": "user", "content": "What is the weather in Paris?"}
    answer = chat.chat.completions.create(messages=[question, message, result], tools=[WEATHER], **GREEDY)

    assert answer.choices[0].finish_reason == "stop"
    assert "21" in answer.choices[0].message.content
    assert answer.usage.prompt_tokens_details.cached_tokens > 0.9 * weather_call["usage"]["prompt_tokens"]


def test_stop_string_ends_the_answer_and_is_left_out(chat):
    whole = chat.chat.completions.create(messages=COUNT, tool_choice="none", max_tokens=12, **GREEDY)
    stop = whole.choices[0].message.content.split()[2]
    cut = chat.chat.completions.create(messages=COUNT, tool_choice="none", max_tokens=12, stop=[stop], **GREEDY)

    before, found, _ = whole.choices[0].message.content.partition(stop)
    assert found
    assert cut.choices[0].message.content == before
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.prompt_tokens == whole.usage.prompt_tokens


def test_forced_call_whose_text_does_not_end_within_the_limit_is_told_and_ends_in_length(chat):
    long = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1000}}, "required": ["text"]}
    note = {"type": "function", "function": {"name": "note", "description": "Notes a text", "parameters": long}}
    answer = chat.chat.completions.create(
        messages=COUNT, tools=[note], tool_choice=named("note"), max_tokens=60, **GREEDY
    ).model_dump()
    (chosen,) = answer["choices"]

    assert chosen["finish_reason"] == "length"
    (half,) = chosen["message"]["tool_calls"]
    assert half["function"]["name"] == "note"
    assert half["function"]["arguments"].startswith('{"text"')
    assert [said["kind"] for said in answer["codec"]["diagnostics"]] == ["truncated"]


def test_length_limit_ends_the_answer_and_is_named(chat):
    answer = chat.chat.completions.create(messages=PARIS, tool_choice="none", max_tokens=5, **GREEDY)

    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 5


def test_choice_of_no_tool_leaves_the_prompt_as_it_is(chat, leaf_answer):
    answer = chat.chat.completions.create(messages=PARIS_NOW, tool_choice="none", max_tokens=5, **GREEDY)

    first = leaf_answer["codec"]["turns"][0]
    assert not answer.choices[0].message.tool_calls
    assert not answer.codec["tool_results"]
    assert answer.usage.prompt_tokens == first["prompt_n"] + first["cache_n"]


def test_same_seed_gives_the_same_answer(chat):
    drawn = {"model": "any", "temperature": 1.5, "max_tokens": 12, "tool_choice": "none"}
    # Of few likely ids: a prompt that was there already rounds otherwise, which decides between ids that are close.
    drawn["extra_body"] = {"top_k": 3}
    texts = [
        chat.chat.completions.create(messages=COUNT, **{**drawn, "seed": seed}).choices[0].message.content
        for seed in (7, 7, 8)
    ]

    assert texts[0] == texts[1] != texts[2]


def test_models_are_listed_with_the_map_that_their_ids_are_of(chat, model_map):
    (model,) = chat.models.list().data

    assert model.id == "SmolLM2-135M-Instruct.Q4_1"
    assert model.model_extra["codec"]["map_id"] == model_map.map_id


def test_the_form_in_which_calls_are_read_is_told_in_the_log_the_status_and_the_list_of_models(chat, site):
    (model,) = chat.models.list().data
    told = {
        site.log.events("engine ready")[-1]["tool_format"],
        httpx2.get(f"{site.admin}/status").json()["engine"]["tool_format"],
        model.model_extra["codec"]["tool_format"],
    }

    assert told == {"generic"}


REFUSED = {
    "no messages": ({"messages": None}, "messages"),
    "empty messages": ({"messages": []}, "messages"),
    "bad role": ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    "image": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
    "no answers": ({"n": 0}, "n"),
    "cold": ({"temperature": -1}, "temperature"),
    "unknown tool": ({"tool_choice": named("time_leaf__nope")}, "tool_choice"),
    "no tool": ({"max_tokens": 0}, "max_tokens"),
    "unknown form": ({"response_format": {"type": "yaml_object"}}, "response_format"),
    "too long": ({"messages": [{"role": "user", "content": "word " * 5000}]}, "messages"),
}


@pytest.mark.parametrize(("change", "field"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_request_that_can_not_be_served_is_refused_by_the_field_at_fault(chat, change, field, stream):
    body = {"messages": PARIS, **GREEDY, "stream": stream, **change}
    with pytest.raises(openai.BadRequestError) as refused:
        chat.post("/chat/completions", body=body, cast_to=object)

    assert refused.value.param == field
    assert refused.value.type == "invalid_request_error"
    assert field.rpartition(".")[2] in refused.value.message or "context" in refused.value.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"{}"])
def test_body_that_is_no_request_is_refused(site, body):
    answer = httpx2.post(f"{site.url}/v1/chat/completions", content=body, headers=JSON)

    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_body_over_the_limit_is_refused_with_the_limit(site):
    body = b'{"messages":"' + b"x" * (32 << 20) + b'"}'
    answer = httpx2.post(f"{site.url}/v1/chat/completions", content=body, headers=JSON)

    assert answer.status_code == 413
    assert str(32 << 20) in answer.json()["error"]["message"]


def test_counters_move_by_what_the_tool_shipped(site, counted_stream):
    assert counted_stream[1] == [1, 0]


def test_metrics_tell_of_the_engine_and_of_requests_of_each_outcome(site, leaf_answer, shim_answer, model_map):
    for name in COUNTERS:
        assert site.metric(name, map=model_map.map_id) >= 1
    assert site.metric("codec_engine_up") == 1
    assert site.metric("codec_chat_requests_total", outcome="ok") >= 2


@pytest.mark.usefixtures("leaf_answer", "shim_answer", "leaf_stream")
def test_log_says_once_of_each_tool_whether_it_ships_ids(site, model_map):
    short = model_map.map_id.removeprefix("sha256:")[:12]
    says_ids, says_none = (
        "the results of this tool come with token ids",
        "the gateway tokenizes the results of this tool",
    )
    for words in (says_ids, says_none):
        site.log.wait_for(words)
    leaf, shim = site.log.events(says_ids), site.log.events(says_none)

    assert [entry["tool"] for entry in leaf] == ["time_leaf__get_current_time"]
    assert [entry["tool"] for entry in shim] == ["plain_time__get_time"]
    assert [entry["map"] for entry in (*leaf, *shim)] == [short, short]


def test_ready_gateway_says_so_of_every_part(site):
    status, report = site.readiness()

    assert status == 200
    assert (report["ready"], report["draining"], report["reasons"]) == (True, False, [])
    assert report["components"] == {"engine": True, "gateway": True}
    assert {name: (up["state"], up["tools"]) for name, up in report["upstreams"].items()} == {
        "time_leaf": ("up", 2),
        "plain_time": ("up", 1),
    }
