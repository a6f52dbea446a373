"""Answers of a form on the real model: `response_format`, as OpenAI's own client asks for it."""

import json
from typing import Annotated, Any, Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

from tests.gateway.toolcalls.answer_schemas import HELD, INTEGER, UNHELD, members

QUESTION = [{"role": "user", "content": "Describe a cat as JSON."}]
GREEDY = {"model": "any", "temperature": 0, "seed": 1, "extra_body": {"gateway_tools": "none"}}
TAGGED = "a union told apart by a tag"
SHORT = ("an enum of every type", TAGGED, "a scalar at the root", "all of bounds", "all of enums")
"""Of these the model comes to an end."""


class Step(BaseModel):
    kind: Literal["walk", 'say "meow"']
    count: int


class Cat(BaseModel):
    """What a client's class is like."""

    steps: Annotated[list[Step], Field(max_length=2)]
    asleep: bool | None


def formed(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "cat", "schema": schema, "strict": True}}


@pytest.mark.parametrize("name", HELD)
def test_engine_takes_the_grammar_and_what_it_ends_fits(chat, name):
    most = 300 if name in SHORT else 3
    answer = chat.chat.completions.create(
        messages=QUESTION, response_format=formed(HELD[name]), max_tokens=most, **GREEDY
    )

    (choice,) = answer.choices
    assert choice.finish_reason in ("stop", "length")
    if choice.finish_reason == "stop":
        jsonschema.validate(json.loads(choice.message.content), HELD[name])
    assert choice.finish_reason == "stop" or name not in SHORT


def test_parse_gives_the_clients_own_class(chat):
    answer = chat.chat.completions.parse(messages=QUESTION, response_format=Cat, max_tokens=200, **GREEDY)

    assert isinstance(answer.choices[0].message.parsed, Cat)


def test_stream_says_the_same_as_the_whole_answer(chat):
    asked = {
        "messages": QUESTION,
        "response_format": formed(HELD[TAGGED]),
        "max_tokens": 200,
        **GREEDY,
    }
    whole = chat.chat.completions.create(**asked)
    chunks = list(chat.chat.completions.create(stream=True, **asked))

    pieces = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert len([piece for piece in pieces if piece]) > 1


def test_any_object_is_the_form_without_a_schema(chat):
    asked = {"messages": QUESTION, "response_format": {"type": "json_object"}, **GREEDY}
    cut = chat.chat.completions.create(max_tokens=5, **asked)
    whole = chat.chat.completions.create(max_tokens=150, **asked)

    assert cut.choices[0].finish_reason == "length"
    assert cut.choices[0].message.content.startswith("{")
    assert whole.choices[0].finish_reason == "length" or isinstance(json.loads(whole.choices[0].message.content), dict)


@pytest.mark.parametrize("name", ["unique items", "elsewhere", "one of two that both fit"])
def test_schema_that_is_not_held_is_refused_by_name(chat, name):
    schema, reason = UNHELD[name]
    with pytest.raises(openai.BadRequestError) as refused:
        chat.chat.completions.create(messages=QUESTION, response_format=formed(schema), **GREEDY)

    assert refused.value.param == "response_format"
    assert reason in str(refused.value)


def test_required_call_comes_before_the_answer(chat):
    tool = {"type": "function", "function": {"name": "look", "parameters": members("n", n=INTEGER)}}
    answer = chat.chat.completions.create(
        messages=QUESTION, tools=[tool], tool_choice="required", response_format=formed({"type": "boolean"}), **GREEDY
    )

    assert answer.choices[0].finish_reason == "tool_calls"
    assert isinstance(json.loads(answer.choices[0].message.tool_calls[0].function.arguments)["n"], int)
