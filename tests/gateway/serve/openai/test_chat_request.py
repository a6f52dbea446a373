"""Bodies of chat requests: taken in OpenAI's shape, or refused by the first field at fault."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent import OURS, Deferral, ToolChoice
from gateway.errors import RequestInvalid
from gateway.serve.openai.chat import ChatRequest
from gateway.serve.openai.completions import CompletionRequest
from gateway.toolcalls.formats.structured_output import AnswerForm
from leaf_sdk.testing import tiny_map
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

TINY = tiny_map()
END = "<|im_end|>"
MESSAGES = [{"role": "user", "content": "hi"}]
PAINT = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object"}}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def formed(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def request_of(**fields: Any) -> ChatRequest:
    return ChatRequest.checked(json.dumps({"messages": MESSAGES, **fields}).encode())[0]


@each_of(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "x"}]}, "messages[0].role"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": 2, "stream_format": "msgpack"}, "n"),
        ({"logprobs": True, "stream_format": "msgpack"}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"functions": [{"name": "f"}], "function_call": "perhaps"}, "tool_choice"),
        ({"grammar": 'root ::= "a"'}, "grammar"),
        ({"guided_grammar": 'root ::= "a"'}, "guided_grammar"),
        ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[" * 100_000}, "guided_json"),
        ({"guided_json": "{}" + " " * 2**20}, "guided_json"),
        ({"guided_choice": ["a", 1]}, "guided_choice"),
        ({"guided_choice": "a"}, "guided_choice"),
        ({"guided_regex": "(?=a)b"}, "guided_regex"),
        ({"guided_regex": ["a"]}, "guided_regex"),
        ({"json_schema": {"type": "strange"}}, "json_schema"),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"type": "object"}, "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "(?=a)b"}}, "structured_outputs.regex"),
        ({"guided_choice": ["a"], "response_format": {"type": "json_object"}}, "guided_choice"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities.1"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "add_generation_prompt"),
        ({"continue_final_message": True, "response_format": {"type": "json_object"}}, "continue_final_message"),
        ({"continue_final_message": True, "tool_choice": "required"}, "continue_final_message"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 101}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"logit_bias": [[5, -1], [6]]}, "logit_bias"),
        ({"logit_bias": [["5", 101]]}, "logit_bias.5"),
        ({"logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -5}, "max_completion_tokens"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", 1]}, "stop"),
        ({"stream": "perhaps"}, "stream"),
        ({"stream_options": {"include_usage": "perhaps"}}, "stream_options.include_usage"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.mode"),
        ({"tool_choice": allowed("auto")}, "tool_choice.tools"),
        ({"tool_choice": allowed("none", "paint")}, "tool_choice.mode"),
        ({"tools": [PAINT, {"type": "function", "function": {"name": ""}}]}, "tools[1].name"),
        ({"functions": [{"description": "?"}]}, "functions[0].name"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": formed({"type": "strange"})}, "response_format"),
        ({"response_format": formed({"type": "array", "uniqueItems": True})}, "response_format"),
        ({"response_format": formed({"enum": list(range(10_001))})}, "response_format"),
    ],
)
def test_field_that_can_not_be_honoured_is_refused_by_name(fields, param):
    with pytest.raises(RequestInvalid) as refused:
        request_of(**fields)

    assert refused.value.param == param
    assert param.partition("[")[0] in refused.value.message


@each_of("body", [b"", b"{", b"[]", b"3", b"null", b"\xff", b'{"messages"', b"[" * 100_000])
def test_body_that_is_no_object_is_refused(body):
    with pytest.raises(RequestInvalid) as refused:
        ChatRequest.checked(body)

    assert refused.value.message.startswith("the body: ")
    assert len(refused.value.message) < 300


@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(list(ChatRequest.model_fields)), x),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_body_is_a_request_or_is_refused(body):
    try:
        request, messages = ChatRequest.checked(body)
    except RequestInvalid:
        return
    assert messages
    assert request.options(TINY).stops is not None


def test_long_value_is_shown_in_part():
    with pytest.raises(RequestInvalid) as refused:
        request_of(temperature="x" * 10_000)

    assert len(refused.value.message) < 300


def test_fields_that_nobody_knows_are_ignored():
    assert request_of(user="me", metadata={"a": 1}, store=True).temperature is None


COLOUR = {"type": "object", "properties": {"c": {"enum": ["red", "blue"]}}, "required": ["c"]}


@each_of(
    ("fields", "form"),
    [
        ({"json_schema": COLOUR}, AnswerForm(COLOUR)),
        ({"guided_json": COLOUR}, AnswerForm(COLOUR)),
        ({"guided_json": json.dumps(COLOUR)}, AnswerForm(COLOUR)),
        ({"guided_json": COLOUR, "response_format": {"type": "text"}}, AnswerForm(COLOUR)),
        ({"guided_json": COLOUR, "guided_choice": [], "guided_regex": None}, AnswerForm(COLOUR)),
        ({"structured_outputs": {"json": COLOUR, "regex": None}}, AnswerForm(COLOUR)),
        ({"structured_outputs": {"json_object": True}}, AnswerForm()),
        ({"structured_outputs": {"choice": ["a", "b"]}}, AnswerForm({"enum": ["a", "b"]}, bare=True)),
        ({"guided_choice": ["a", "b"]}, AnswerForm({"enum": ["a", "b"]}, bare=True)),
    ],
)
def test_forms_in_the_shapes_of_llama_cpp_and_vllm_are_one_form(fields, form):
    assert request_of(**fields).form == form
    assert CompletionRequest.of_body(json.dumps({"prompt": "x", **fields}).encode()).options(TINY).form == form


@each_of(
    ("regex", "fits", "other"),
    [
        (r"\d{3}-\d{4}", "555-1234", "x555-1234"),
        (r"^\d{3}$", "555", "5555"),
        (r"yes|no", "no", "nope"),
        (r"(red|blue) \w+", "red car", "red"),
        (r"a\$", "a$", "a"),
        (r'"q"', '"q"', "q"),
        (r"[^a]+", "bcd\n", "a"),
        (r"a*", "", "b"),
    ],
)
def test_regular_expression_holds_the_whole_answer_without_quotes(regex, fits, other):
    form = request_of(guided_regex=regex).form

    assert form is not None
    assert Gbnf(form.grammar).takes(fits)
    assert not Gbnf(form.grammar).takes(other)


@pytest.mark.parametrize(
    "texts", [["positive", "negative"], ['say "x"', "{", "東京"], [f"choice {n}" for n in range(90)]]
)
def test_choice_holds_the_answer_to_one_of_its_texts(texts):
    form = request_of(guided_choice=texts).form

    assert form is not None
    grammar = Gbnf(form.grammar)
    assert all(map(grammar.takes, texts))
    assert not any(map(grammar.takes, [json.dumps(texts[0]), texts[0] + "x", texts[0][:-1], "x"]))


def test_null_means_not_given():
    nothing = dict.fromkeys(["stream", "tools", "tool_choice", "stop", "n", "seed", "stream_options"])

    assert request_of(**nothing) == request_of()


def test_sampling_passes_as_it_was_asked_for():
    asked = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "presence_penalty": 1, "frequency_penalty": -1}
    sampling = request_of(**asked).options(TINY).sampling

    assert {name: getattr(sampling, name) for name in asked} == asked


def test_what_was_not_asked_for_is_left_to_the_engine():
    options = request_of().options(TINY)

    assert (options.choice, options.max_tokens, options.stops, options.parallel) == (ToolChoice(), None, (), None)
    assert options.sampling.temperature is None
    assert options.sampling.seed is None


@pytest.mark.parametrize(("stop", "stops"), [("END", ("END",)), (["a", "b"], ("a", "b")), ([], ())])
def test_stop_is_one_text_or_a_list(stop, stops):
    assert request_of(stop=stop).options(TINY).stops == stops


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
    ],
)
def test_newer_name_of_the_limit_wins(limits, most):
    assert request_of(**limits).options(TINY).max_tokens == most


@pytest.mark.parametrize(
    ("asked", "form"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, AnswerForm()),
        (formed({"type": "integer"}), AnswerForm({"type": "integer"})),
        ({"type": "json_schema", "name": "x", "schema": {"type": "integer"}}, AnswerForm({"type": "integer"})),
        ({"type": "json_object", "schema": {"type": "integer"}}, AnswerForm({"type": "integer"})),
        ({}, None),
    ],
)
def test_form_of_the_answer_in_the_agents_terms(asked, form):
    assert request_of(response_format=asked).options(TINY).form == form


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "paint"}}, ToolChoice.named("paint")),
        (allowed("auto", "paint", "draw"), ToolChoice("auto", ("paint", "draw"))),
        (allowed("required", "paint"), ToolChoice("required", ("paint",))),
    ],
)
def test_tool_choice_in_the_agents_terms(choice, meant):
    request = request_of(tool_choice=choice)

    assert request.choice == meant
    assert request.options(TINY).choice == meant


def test_clients_tools_keep_their_schema_and_may_leave_things_out():
    bare = {"type": "function", "function": {"name": "bare"}}
    first, second = request_of(tools=[PAINT, bare]).read_tools.specs

    assert (first.name, first.description, first.parameters) == ("paint", "", {"type": "object"})
    assert (second.name, second.parameters) == ("bare", {"type": "object"})


def test_clients_tools_that_are_deferred_are_found_by_a_search_of_the_gateway():
    later = {**PAINT, "defer_loading": True}
    bare = {"type": "function", "function": {"name": "bare"}}

    assert request_of(tools=[later, bare]).read_tools.deferral == Deferral(frozenset({"paint"}), OURS)
    assert request_of(tools=[PAINT, bare]).read_tools.deferral == Deferral()


@pytest.mark.parametrize(
    ("options", "asked"),
    [({}, False), ({"stream_options": {"include_usage": True}}, True), ({"stream_options": {}}, False)],
)
def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(options, asked):
    assert request_of(**options).usage_chunk is asked


@each_of("written", ["NaN", "-Infinity", "1e999", "-1E+400", "1.5e0309", "9" * 309, "1" * 250 + "e99"])
@each_of(
    ("body", "place"),
    [
        ('"temperature": %s', "temperature"),
        ('"logit_bias": {"5": %s}', "logit_bias.5"),
        ('"metadata": {"a": [1, {"b": %s}]}', "metadata.a.1.b"),
        (
            '"tools": [{"type": "function", "function": {"name": "f", "parameters": {"minimum": %s}}}]',
            "tools.0.function.parameters.minimum",
        ),
    ],
)
def test_number_that_json_does_not_have_is_refused_by_its_place_wherever_it_stands(body: str, place: str, written: str):
    text = '{"messages": [{"role": "user", "content": "hi"}], ' + body % written + "}"

    with pytest.raises(RequestInvalid, match="NaN and Infinity are not JSON numbers") as refused:
        ChatRequest.checked(text.encode())

    assert refused.value.param == place


@pytest.mark.parametrize("written", ["1e308", "1e-999", "1" * 308, '"1e999"', '"NaN"', "0e999"])
def test_number_that_a_machine_holds_and_text_that_spells_another_are_taken(written: str):
    text = '{"messages": [{"role": "user", "content": "hi"}], "metadata": {"x": ' + written + "}}"

    assert ChatRequest.checked(text.encode())[0].messages == MESSAGES


def test_completions_refuse_them_as_well():
    with pytest.raises(RequestInvalid, match=r"^logit_bias\.7: NaN and Infinity"):
        CompletionRequest.of_body(b'{"prompt": "x", "logit_bias": {"7": 1e999}}')


@pytest.mark.parametrize("body", [b"1e999", b"[[1e999", b'{"a": 1e999}}'])
def test_what_is_no_request_is_still_refused_by_name(body: bytes):
    with pytest.raises(RequestInvalid):
        ChatRequest.checked(body)


CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
MANY = {"type": "object", "properties": {"a": {"enum": ["x"] * 30_000}}}


@pytest.mark.parametrize(
    ("fields", "param", "bound"),
    [
        ({"stop": ["x"] * 65}, "stop", "at most 64 texts of at most 1000 characters"),
        ({"stop": "x" * 1001}, "stop", "at most 64 texts of at most 1000 characters"),
        ({"stop": ["y", "x" * 1001]}, "stop", "at most 64 texts of at most 1000 characters"),
        ({"tools": [PAINT] * 1025}, "tools", "at most 1024"),
        (
            {"tools": [{"type": "function", "function": {"name": name, "parameters": MANY}} for name in ("a", "b")]},
            "tools",
            "more than 50000 values",
        ),
        ({"messages": MESSAGES * 10_001}, "messages", "more than 10000 messages and calls"),
        (
            {"messages": [*MESSAGES, {"role": "assistant", "tool_calls": [CALL] * 9_999}]},
            "messages",
            "more than 10000 messages and calls",
        ),
    ],
)
def test_list_that_a_client_chose_has_a_bound_that_is_named(fields, param, bound):
    with pytest.raises(RequestInvalid, match=bound) as refused:
        request_of(**fields)

    assert refused.value.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": ["x" * 1000] * 64},
        {"tools": [PAINT] * 1024},
        {"tools": [{"type": "function", "function": {"name": "a", "parameters": MANY}}]},
        {"messages": MESSAGES * 10_000},
        {"messages": [*MESSAGES, {"role": "assistant", "tool_calls": [CALL] * 9_998}]},
    ],
)
def test_list_up_to_its_bound_is_taken(fields):
    assert request_of(**fields)


def test_completions_bound_their_stop_strings_as_well():
    with pytest.raises(RequestInvalid, match="stop: expected at most 64 texts"):
        CompletionRequest.of_body(b'{"prompt": "x", "stop": [' + b'"a",' * 200_000 + b'"b"]}')


def test_how_ids_are_drawn_in_the_engines_terms():
    word = TINY.encode("a")[0]
    sampling = request_of(top_k=-1, min_p=0.1, logit_bias={str(word): -100}).options(TINY).sampling

    assert (sampling.top_k, sampling.min_p, sampling.logit_bias) == (0, 0.1, ((word, -100.0),))
    assert request_of(top_k=40).options(TINY).sampling.top_k == 40


NO_IDS = ["-1", "x", "1e3", "\u0661", "9" * 40, str(2**32), str(TINY.encode(END, specials=True)[0])]


@pytest.mark.parametrize("name", NO_IDS)
def test_bias_of_what_is_no_ordinary_id_is_refused(name):
    request = request_of(logit_bias={name: 1})

    with pytest.raises(RequestInvalid, match=r"not an id of the map|control token") as refused:
        request.options(TINY)
    assert refused.value.param == "logit_bias"


def test_options_that_the_template_does_not_know_are_named_beside_other_fields_without_effect():
    request = request_of(user="u", reasoning_effort="low", chat_template_kwargs={"enable_thinking": False, "x": 1})

    assert request.template_options == {"reasoning_effort": "low", "enable_thinking": False, "x": 1}
    assert request.without_effect({"enable_thinking"}) == ("user", "chat_template_kwargs.x", "reasoning_effort")
    assert request.without_effect(request.template_options) == ("user",)


@pytest.mark.parametrize(("seed", "drawn"), [(7, 7), (2**32 + 7, 7), (-2, 2**32 - 2), (1_795_907_183_123, 610_853_395)])
def test_seed_of_64_bits_is_taken_as_its_last_32(seed: int, drawn: int) -> None:
    assert request_of(seed=seed).options(TINY).sampling.seed == drawn == seed % 2**32


def test_minus_one_is_no_bound_and_no_seed() -> None:
    body = (
        b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": -1, "max_completion_tokens": -1, "seed": -1}'
    )
    request = ChatRequest.of_body(body)

    assert (request.most, request.sampling.seed, request.ignored) == (None, None, ())
    with pytest.raises(RequestInvalid, match="max_tokens"):
        ChatRequest.of_body(body.replace(b'"max_tokens": -1', b'"max_tokens": -2'))


@pytest.mark.parametrize(
    ("sent", "prompt"), [(b'["x"]', "x"), (b"[[1, 2]]", [1, 2]), (b"[1]", [1]), (b'"x"', "x"), (b'[""]', "")]
)
def test_list_of_one_prompt_is_that_prompt(sent: bytes, prompt: object) -> None:
    assert CompletionRequest.of_body(b'{"prompt": %s}' % sent).prompt == prompt


@pytest.mark.parametrize("sent", [b'["x", "y"]', b'[["x"]]', b"[[[1]]]", b'[{"a": 1}]'])
def test_more_than_one_prompt_is_refused(sent: bytes) -> None:
    with pytest.raises(RequestInvalid, match="prompt"):
        CompletionRequest.of_body(b'{"prompt": %s}' % sent)


@pytest.mark.parametrize(
    "tool",
    [
        {"function": {"name": "paint"}},
        {"type": "function", "function": {"name": "paint", "parameters": None}},
        {"type": "function", "function": {"name": "paint", "description": None, "parameters": {}}},
        {"type": "function", "function": {"name": "paint", "strict": True, "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "paint", "input_schema": {"type": "object"}}},
        {"type": "function", "function": {"name": "paint"}, "cache_control": {"type": "ephemeral"}},
    ],
)
def test_a_tool_needs_no_more_than_its_name(tool: dict[str, Any]) -> None:
    (read,) = request_of(tools=[tool]).read_tools.specs
    assert (read.name, read.description, read.parameters) == ("paint", "", {"type": "object"})


def call_of(arguments: object) -> dict[str, Any]:
    return {"id": "a", "type": "function", "function": {"name": "paint", "arguments": arguments}}


RESULT = {"role": "tool", "tool_call_id": "a", "content": "red"}


@each_of(
    "messages",
    [
        [{"role": "assistant", "content": "", "tool_calls": [call_of("{}")]}, RESULT],
        [{"role": "assistant", "content": None, "tool_calls": [call_of(None)]}, RESULT],
        [{"role": "assistant", "tool_calls": [call_of("")]}, RESULT],
        [{"role": "assistant", "content": None, "reasoning_content": "hm"}],
        [{"role": "assistant", "content": "x", "tool_calls": None}],
        [{"role": "assistant", "tool_calls": [call_of('{"x": "y')]}],
        [{"role": "assistant", "tool_calls": [call_of({"x": 1})]}, {**RESULT, "content": {"x": 1}}],
        [{"role": "assistant", "tool_calls": [call_of("{}"), call_of("{}")]}, RESULT, RESULT],
        [{"role": "assistant", "tool_calls": [call_of("{}")]}, {**RESULT, "content": ["x", {"y": 1}]}],
        [{"role": "assistant", "tool_calls": [call_of("{}")]}, {**RESULT, "content": None}],
        [RESULT],
        [{**RESULT, "tool_call_id": None}],
    ],
)
def test_histories_that_agents_send_are_taken(messages: list[dict[str, Any]]) -> None:
    asked = ChatRequest.checked(json.dumps({"messages": [*MESSAGES, *messages, *MESSAGES]}).encode())[1]
    assert [message["role"] for message in asked] == ["user", *(message["role"] for message in messages), "user"]
