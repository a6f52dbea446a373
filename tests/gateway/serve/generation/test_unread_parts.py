"""Pictures, files and unknown parts in histories: the APIs take them alike, and say what the model did not read."""

import json
from base64 import b64encode
from typing import Any

import pytest

from tests.gateway.proxy.test_stand_in import PNG
from tests.gateway.serve.generation.three_apis import CHAT, MESSAGES, RESPONSES, SCHEMA, Apis

pytestmark = pytest.mark.anyio

DATA = b64encode(PNG).decode()
URL = f"data:image/png;base64,{DATA}"
SHOWN = f"[image/png, 1280x720, {len(PNG)} bytes: this model reads text]"
UNKNOWN = "[content of an unknown kind: this model reads text]"
ASK: dict[str, Any] = {"role": "user", "content": "hi"}
FUNCTION = {"name": "look", "description": "Look", "parameters": SCHEMA}
TEXT = {"type": "text", "text": "a screenshot:"}


def chat(content: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [ASK, said, {"role": "tool", "tool_call_id": "c1", "content": content}]
    return {"messages": messages, "tools": [{"type": "function", "function": FUNCTION}]}


def responses(output: Any, kind: str = "function_call_output") -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    items = [ASK, call, {"type": kind, "call_id": "c1", "output": output}]
    return {"input": items, "tools": [{"type": "function", **FUNCTION}], "store": False}


def messages(content: Any) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": content}
    turns = [ASK, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return {"messages": turns, "tools": [{"name": "look", "input_schema": SCHEMA}]}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
RESULTS: list[tuple[str, dict[str, Any], str, list[str]]] = [
    (
        CHAT,
        chat([TEXT, {"type": "image_url", "image_url": {"url": URL}}]),
        f"a screenshot:\n{SHOWN}",
        ["messages: image_url"],
    ),
    (CHAT, chat([{"type": "image", "data": DATA, "mimeType": "image/png"}]), SHOWN, ["messages: image"]),
    (CHAT, chat([{"type": "hologram\n"}]), UNKNOWN, ["messages: hologram\\n"]),
    (CHAT, chat([{"title": "no part", "n": 1}, "x"]), '{"title": "no part", "n": 1}\nx', []),
    (CHAT, chat([{"type": "file", "file": {"file_id": "f"}}]), "[file: this model reads text]", ["messages: file"]),
    (RESPONSES, responses([{"type": "input_image", "image_url": URL}]), SHOWN, ["input.input_image"]),
    (
        RESPONSES,
        responses([{"type": "input_text", "text": "a"}, {"type": "input_image", "file_id": "f"}]),
        "a\n[image: this model reads text]",
        ["input.input_image"],
    ),
    (
        RESPONSES,
        responses([{"type": "input_file", "file_url": "https://a/b"}]),
        "[file, not fetched: this model reads text]",
        ["input.input_file"],
    ),
    (RESPONSES, responses([{"type": "hologram"}], "custom_tool_call_output"), UNKNOWN, ["input.hologram"]),
    (MESSAGES, messages([TEXT, IMAGE]), f"a screenshot:\n{SHOWN}", ["messages: image"]),
    (
        MESSAGES,
        messages([{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}]),
        "[application/pdf, 3 bytes: this model reads text]",
        ["messages: document"],
    ),
    (
        MESSAGES,
        messages([{"type": "image", "source": {"type": "url", "url": "https://a/b"}}]),
        "[image, not fetched: this model reads text]",
        ["messages: image"],
    ),
    (
        MESSAGES,
        messages([{"type": "search_result", "content": [TEXT], "title": "x"}]),
        "a screenshot:",
        ["messages: search_result.title"],
    ),
    (MESSAGES, messages([{"type": "hologram"}]), UNKNOWN, ["messages: hologram"]),
]


@pytest.mark.parametrize(("path", "body", "shown", "ignored"), RESULTS, ids=[str(n) for n in range(len(RESULTS))])
@pytest.mark.parametrize("stream", [False, True])
async def test_part_of_a_result_that_is_no_text_has_a_stand_in_and_is_named(
    apis: Apis, path: str, body: dict[str, Any], shown: str, ignored: list[str], stream: bool
) -> None:
    if stream:
        events = await apis.events(path, body, "Well.")
        told = next(each for each in (e.get("response", e) for e in reversed(events)) if "codec" in each)
    else:
        told = await apis.ask(path, body, "Well.")

    assert f"<|im_start|>tool\n{shown}<|im_end|>" in apis.engine.prompts[-1]
    assert told["codec"].get("ignored", []) == ignored


async def test_history_with_a_picture_goes_on_from_what_is_remembered(apis: Apis) -> None:
    body = messages([TEXT, IMAGE])
    first = await apis.ask(MESSAGES, body, "A bird.")
    turns = [
        *body["messages"],
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": "Sure?"},
    ]

    second = await apis.ask(MESSAGES, {**body, "messages": turns}, "Yes.")

    assert apis.engine.prompts[1].startswith(apis.engine.prompts[0] + "A bird.")
    assert second["codec"]["prompt"]["held"] > 0


ANSWERS: list[tuple[str, Any, str]] = [
    (CHAT, [{"type": "thinking", "thinking": "hm"}, TEXT], "messages: thinking"),
    (CHAT, [{"type": "image_url", "image_url": {"url": URL}}, TEXT], "messages: image_url"),
    (CHAT, [{"type": "refusal", "refusal": "a screenshot:"}], ""),
    (
        RESPONSES,
        [{"type": "output_image", "x": 1}, {"type": "output_text", "text": "a screenshot:"}],
        "input.output_image",
    ),
    (
        RESPONSES,
        [{"type": "input_image", "image_url": URL}, {"type": "output_text", "text": "a screenshot:"}],
        "input.input_image",
    ),
    (MESSAGES, [IMAGE, TEXT], "messages: image"),
]


@pytest.mark.parametrize(("path", "content", "ignored"), ANSWERS, ids=[str(n) for n in range(len(ANSWERS))])
async def test_part_of_an_answer_that_is_no_text_is_left_out_and_named(
    apis: Apis, path: str, content: Any, ignored: str
) -> None:
    history = [ASK, {"role": "assistant", "content": content}, {"role": "user", "content": "and?"}]

    answer = await apis.ask(path, {"input" if path == RESPONSES else "messages": history}, "Well.")

    assert "<|im_start|>assistant\na screenshot:<|im_end|>" in apis.engine.prompts[-1]
    assert answer["codec"].get("ignored", []) == [ignored][: bool(ignored)]


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"type": "image_url", "image_url": {"url": URL}}),
    (CHAT, {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    (CHAT, {"type": "file", "file": {"file_id": "f"}}),
    (RESPONSES, {"type": "input_image", "image_url": URL}),
    (RESPONSES, {"type": "input_file", "file_id": "f"}),
    (MESSAGES, IMAGE),
    (MESSAGES, {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}),
]


@pytest.mark.parametrize(("path", "part"), QUESTIONS, ids=[f"{path}-{part['type']}" for path, part in QUESTIONS])
async def test_picture_or_file_in_a_question_is_refused(apis: Apis, path: str, part: dict[str, Any]) -> None:
    text = {"type": "input_text" if path == RESPONSES else "text", "text": "What is it?"}
    history = [{"role": "user", "content": [text, part]}]

    answer = await apis.post(path, {"input" if path == RESPONSES else "messages": history}, "unwanted")

    assert answer.status_code == 400
    assert part["type"] in json.dumps(answer.json()) or "application/pdf" in str(part)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_part_of_an_unknown_kind_in_a_question_is_left_out_and_named(apis: Apis, path: str) -> None:
    text = {"type": "input_text" if path == RESPONSES else "text", "text": "What is it?"}
    history = [{"role": "user", "content": [{"type": "hologram", "x": 1}, text]}]

    answer = await apis.ask(path, {"input" if path == RESPONSES else "messages": history}, "Well.")

    assert "<|im_start|>user\nWhat is it?<|im_end|>" in apis.engine.prompts[-1]
    assert [each.rpartition("hologram")[1] for each in answer["codec"]["ignored"]] == ["hologram"]
