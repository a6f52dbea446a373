"""`/v1/responses` as the official client meets it, on the real engine: items, streams, conversations that come back."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Annotated, Any

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, Field, TypeAdapter

from tests.cases import IN_FULL
from tests.e2e.conftest import RunningGateway

pytestmark = pytest.mark.engine

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"enum": [1, 2, 3], "default": 1}},
        "required": ["city"],
    },
}
OURS = {"type": "function", "name": "ours__clock"}
NAMED = {"type": "function", "name": "weather"}
CHOICES: tuple[Any, ...] = (NAMED, "none", OURS, NAMED, NAMED, "none", OURS, "none")
EACH = len(CHOICES) if IN_FULL else 5
"""How many of them a style gets in a row, each style from another one on; in `make fuzz` all."""


@pytest.fixture(scope="module")
def chat(
    tmp_path_factory: pytest.TempPathFactory,
    run_gateway: Callable[..., AbstractContextManager[RunningGateway]],
    engine_flags: list[str],
    server: Callable[..., dict[str, Any]],
) -> Iterator[openai.OpenAI]:
    """The client of a gateway with one tool, whose argument is one of two cities."""
    folder = tmp_path_factory.mktemp("responses")
    clock = server("clock")
    ours = {**clock, "args": [*clock["args"], str(folder / "calls")]}
    env = {"CODEC_GATEWAY_PREFIX": "always"}
    with run_gateway(folder, {"ours": ours}, *engine_flags, env=env) as gateway, gateway.client() as client:
        yield client


def as_it_came(item: dict[str, Any]) -> dict[str, Any]:
    return item


def rewritten(item: dict[str, Any]) -> dict[str, Any]:
    """As clients do that parse calls and write them anew, with the defaults of the schema."""
    if item["type"] != "function_call":
        return {"role": "assistant", "content": item["content"][0]["text"]} if item["type"] == "message" else item
    arguments = dict(sorted({"days": 1, **json.loads(item["arguments"])}.items(), reverse=True))
    call = {key: item[key] for key in ("type", "call_id", "name")}
    return {**call, "arguments": json.dumps(arguments, separators=(",", ":"))}


def by_reference(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "item_reference", "id": item["id"]} if item["type"] in ("message", "mcp_call") else rewritten(item)


def next_items(output: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """What a client says to the calls of an answer, or asks next."""
    calls = [item for item in output if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": c["call_id"], "output": "Sunny, 20 °C"} for c in calls]
    return results or [{"role": "user", "content": f"And tomorrow? ({number})"}]


def stream(chat: openai.OpenAI, **body: Any) -> dict[str, Any]:
    events = [event.model_dump(mode="json") for event in chat.responses.create(**body, stream=True)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        EVENT.validate_python(event, strict=True)
    done = {event["item"]["id"] for event in events if event["type"] == "response.output_item.done"}
    assert done == {item["id"] for item in events[-1]["response"]["output"]}
    return events[-1]["response"]


def whole(chat: openai.OpenAI, **body: Any) -> dict[str, Any]:
    response = chat.responses.create(**body).model_dump(mode="json")
    Response.model_validate(response, strict=True)
    return response


STYLES = {"items": (as_it_came, 2), "rewritten": (rewritten, 0), "references": (by_reference, 3), "previous": (None, 6)}
"""How each echoes an answer, and with which of the choices it begins."""


@pytest.mark.in_full
@pytest.mark.parametrize(("echo", "start"), STYLES.values(), ids=STYLES)
def test_next_request_finds_all_that_the_engine_holds(
    chat: openai.OpenAI, echo: Callable[[dict[str, Any]], dict[str, Any]] | None, start: int
) -> None:
    name = echo.__name__ if echo else "previous"
    items: list[dict[str, Any]] = [{"role": "user", "content": f"The weather in Bern, please ({name})."}]
    found: list[dict[str, Any]] = []
    previous: str | None = None
    kinds: set[str] = set()
    for number in range(EACH):
        choice = CHOICES[(start + number) % len(CHOICES)]
        body: dict[str, Any] = {
            "model": "any",
            "input": items,
            "tools": [WEATHER],
            "tool_choice": choice,
            "max_output_tokens": 24 if choice == "none" else 90,
            "temperature": 0.8,
            "extra_body": {"seed": number},
        }
        if previous is not None and echo is None:
            body["previous_response_id"] = previous
        response = (stream if number % 2 else whole)(chat, **body)
        found.append(response["codec"].get("prompt", {}))
        previous, output = response["id"], response["output"]
        kinds |= {item["type"] for item in output}
        before = [] if echo is None else [*items, *map(echo, output)]
        items = [*before, *next_items(output, number)]

    held = [told["held"] for told in found[1:]]
    assert all(0 < told["held"] <= told["reused"] for told in found[1:]), found
    # Nothing of a conversation that goes on is forgotten.
    assert all(before < after for before, after in pairwise(held)), found
    assert {"message", "function_call", "mcp_call"} <= kinds


def test_stored_response_is_told_by_the_official_client(chat: openai.OpenAI) -> None:
    response = chat.responses.create(model="any", input="Hello.", tool_choice="none", max_output_tokens=8)
    again = chat.responses.retrieve(response.id)
    items = list(chat.responses.input_items.list(response.id))
    chat.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError) as gone:
        chat.responses.create(model="any", input="And now?", previous_response_id=response.id)

    assert again == response
    assert [item.content[0].text for item in items] == ["Hello."]
    assert (gone.value.code, gone.value.param) == ("previous_response_not_found", "previous_response_id")


def test_server_of_the_configuration_is_asked_with_approval(chat: openai.OpenAI) -> None:
    tool = {"type": "mcp", "server_label": "ours", "allowed_tools": ["clock"], "require_approval": "always"}
    choice = {"type": "mcp", "server_label": "ours", "name": "clock"}
    body: dict[str, Any] = {"model": "any", "tools": [tool], "temperature": 0, "max_output_tokens": 60}
    asked = chat.responses.create(**body, input="What time is it in Tokyo?", tool_choice=choice)
    (question,) = [item for item in asked.output if item.type == "mcp_approval_request"]
    answer = {"type": "mcp_approval_response", "approval_request_id": question.id, "approve": True}
    told = chat.responses.create(**body, input=[answer], previous_response_id=asked.id, tool_choice="none")
    (ran,) = [item for item in told.output if item.type == "mcp_call"]

    assert asked.output[0].type == "mcp_list_tools"
    assert (ran.approval_request_id, ran.arguments) == (question.id, question.arguments)
    assert ran.error is None
    assert ran.output is not None
    assert "it is 9 o'clock" in ran.output
    assert told.codec["prompt"]["lost"] == 0
    assert "mcp_list_tools" not in [item.type for item in told.output]


def test_namespaces_and_free_form_tools_are_called_by_their_own_names(chat: openai.OpenAI) -> None:
    tools = [
        {"type": "namespace", "name": "files", "description": "x", "tools": [{"type": "function", "name": "ls"}]},
        {"type": "custom", "name": "patch", "description": "Changes a file"},
    ]
    body: dict[str, Any] = {"model": "any", "input": "Go.", "tools": tools, "temperature": 0, "max_output_tokens": 90}
    listed = chat.responses.create(**body, tool_choice={"type": "function", "name": "ls", "namespace": "files"})
    patched = chat.responses.create(**body, tool_choice={"type": "custom", "name": "patch"}, parallel_tool_calls=False)

    assert [(item.name, item.namespace) for item in listed.output if item.type == "function_call"] == [("ls", "files")]
    assert all(item.name == "patch" for item in patched.output if item.type == "custom_tool_call")


class Place(BaseModel):
    """What is asked for."""

    city: Annotated[str, Field(max_length=20)]
    days: Annotated[int, Field(ge=1, le=9)]


def test_form_of_the_text_is_held(chat: openai.OpenAI) -> None:
    answer = chat.responses.parse(
        model="any",
        input="Two days in Bern.",
        text_format=Place,
        tool_choice="none",
        temperature=0,
        max_output_tokens=90,
    )

    assert isinstance(answer.output_parsed, Place)
