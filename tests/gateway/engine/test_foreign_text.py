"""Words of others in every chat template of llama.cpp's set: the prompt says them, and no control token comes of them.

The engine renders, with a vocabulary in which all markers of all templates are control tokens.
"""

import json
import os
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.interface import Message
from gateway.engine.rendering.foreign_text import ForeignText, MarkerGuard, Signs
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import EngineRefused, TemplateRefused
from gateway.toolcalls.schema.keywords import resolve
from leaf_sdk.vocab import TokenMap
from tests.gateway.toolcalls.unconverted_schemas import CLASSES

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

TEMPLATES = sorted(path.stem for path in (Path(__file__).parents[2] / "third_party" / "chat_templates").glob("*.jinja"))
ALL_MARKERS = "CODEC_ALL_MARKERS" in os.environ
"""Whether every marker of the vocabulary is tried on every template (`make test-templates`).

Otherwise it is the first and the last that the template writes itself, whole and in a third of the attempts at them.
"""
HARMLESS = "wordy"


@pytest.fixture(scope="module", params=TEMPLATES)
def served(request: pytest.FixtureRequest, serve_template: Callable[[str], str]) -> tuple[str, str]:
    return request.param, serve_template(request.param)


@pytest.fixture
async def engine(served: tuple[str, str]) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(served[1])
    yield client
    await client.aclose()


def tools_of(word: str) -> list[dict[str, Any]]:
    """Two tools with `word` wherever somebody else's words may stand."""
    inner = {"type": "array", "items": {"type": "string", "enum": [word, "b"]}, "description": word, "default": [word]}
    properties = {
        word: {"type": "string", "description": word, "title": word, "enum": [word], "const": word, "pattern": word},
        f"{word}2": {"type": "object", "properties": {word: inner}, "required": [word], "x-note": {word: word}},
        "n": {"type": ["integer", "null"], "format": word, "default": {word: [word]}, word: word},
        "u": {"anyOf": [{"type": word}, {"$ref": word}]},
    }
    schema = {"type": "object", "properties": properties, "required": [word], "$defs": {word: inner}, word: word}
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": word, "description": f"{word}\n{word}", "parameters": schema}},
        {"type": "function", "function": {"name": "plain", "description": "Nothing", "parameters": plain}},
    ]


def call_of(word: str, call_id: str) -> dict[str, Any]:
    arguments = json.dumps({word: word, "n": {word: [word, 7]}, "flag": True})
    return {"id": call_id, "type": "function", "function": {"name": word, "arguments": arguments}}


def lived(word: str, call_id: str = "abcdefghi") -> list[Message]:
    """A conversation in which `word` stands wherever somebody else's words may; some templates take ids of 9 signs."""
    return [
        {"role": "system", "content": f"Be {word}."},
        {"role": "user", "content": word},
        {"role": "assistant", "content": "", "reasoning_content": word, "tool_calls": [call_of(word, call_id)]},
        {"role": "tool", "content": word, "name": word, "tool_call_id": call_id},
        {"role": "assistant", "content": f"so {word}"},
        {"role": "user", "content": f"and {word}"},
    ]


def shorter(messages: Sequence[Message]) -> list[list[Message]]:
    """The conversation, and what is left of it for templates that refuse some of it."""
    chat = [m for m in messages if m["role"] != "tool" and not m.get("tool_calls")]
    return [list(messages), list(messages[1:]), chat, chat[1:], chat[1:2]]


async def accepted(engine: LlamaCpp) -> tuple[int, bool]:
    """Which of `shorter` a template takes, and whether with tools."""
    for number, messages in enumerate(shorter(lived(HARMLESS))):
        marked = [{**m, "content": f"{m['role']}'s words"} for m in messages]
        for tools in (tools_of(HARMLESS), []):
            try:
                text = await engine.apply_template(marked, tools)
            except EngineRefused:
                continue
            # One that drops results is given them as a user's words, which is another conversation.
            if "tool's words" in text or all(m["role"] != "tool" for m in messages):
                return number, bool(tools)
    raise AssertionError("the template takes no conversation at all")


async def control_ids(template: ChatTemplate, token_map: TokenMap, word: str, form: tuple[int, bool]) -> list[int]:
    number, with_tools = form
    tools = tools_of(word) if with_tools else []
    # An id of nine signs is one that Mistral's templates take, unless it is guarded: then calls are not shown at all.
    call_id = HARMLESS if len(word) == len("abcdefghi") else word
    try:
        ids = (await template.prompt(shorter(lived(word, call_id))[number], tools)).ids
    except TemplateRefused:
        ids = (await template.prompt(shorter(lived(word))[number], tools)).ids
    return [token_id for token_id in ids if token_id in token_map.special_ids]


def attempts(marker: str) -> list[str]:
    """What a template's own characters, or others of the same stranger, could complete to `marker`."""
    parts = [marker[:-1], marker[1:], marker[1:-1], marker.strip("<>|｜[]/〈〉"), marker[2:], marker[:-2]]
    upper = [marker.upper(), marker[1:-1].upper()]
    return [part for part in dict.fromkeys([marker, *parts, *upper, f"x\n{marker[1:-1]}\ny"]) if part]


async def test_words_of_others_never_become_control_tokens(
    engine: LlamaCpp, served: tuple[str, str], markers_map: TokenMap
) -> None:
    name, _ = served
    facts = await engine.facts()
    template = ChatTemplate(engine, facts, markers_map)
    form = await accepted(engine)
    expected = await control_ids(template, markers_map, HARMLESS, form)
    own = [m for m in markers_map.special_texts if m in facts.chat_template] or ["<no_bos>"]
    markers = markers_map.special_texts if ALL_MARKERS else [own[0], own[-1]]
    tried = 0
    for number, marker in enumerate(markers, TEMPLATES.index(name)):
        others = attempts(marker)[1:]
        for word in (marker, *(others if ALL_MARKERS else others[number % 3 :: 3])):
            try:
                found = await control_ids(template, markers_map, word, form)
            except TemplateRefused:
                continue
            assert found == expected, word
            tried += 1
    assert tried >= len(markers)


async def test_marker_in_two_strings_that_a_template_joins_stays_text(
    engine: LlamaCpp, served: tuple[str, str], markers_map: TokenMap
) -> None:
    facts = await engine.facts()
    template = ChatTemplate(engine, facts, markers_map)
    step = 1 if ALL_MARKERS else 200
    for marker in list(markers_map.special_texts)[7 * TEMPLATES.index(served[0]) % step :: step]:
        for cut in range(1, len(marker), 1 if ALL_MARKERS else 4):
            messages = [{"role": "user", "content": marker[:cut]}]
            tools = [
                {"type": "function", "function": {"name": left, "description": right, "parameters": {"type": "object"}}}
                for left, right in pairwise((marker[:cut], marker[cut:], marker[:cut]))
            ]
            ids = (await template.prompt(messages, tools)).ids
            plain = [t | {"function": t["function"] | {"name": HARMLESS, "description": HARMLESS}} for t in tools]
            other = (await template.prompt([{"role": "user", "content": HARMLESS}], plain)).ids
            special = markers_map.special_ids
            assert [i for i in ids if i in special] == [i for i in other if i in special], marker


TEXTS = [
    "plain",
    ' "quoted" <b> & \\n \\',
    "two\nlines\n",
    "\n\n blanks \t",
    "é 東京 😀",
    '{"a": [1, "x"]}',
    "mark0123456789abcdefn0e",
]


async def test_the_prompt_says_what_the_engine_itself_renders(engine: LlamaCpp, markers_map: TokenMap) -> None:
    template = ChatTemplate(engine, await engine.facts(), markers_map)
    number, with_tools = await accepted(engine)
    tools = tools_of(HARMLESS) if with_tools else []
    for text in TEXTS:
        messages = [{**message, "content": text if message["content"] else ""} for message in lived(HARMLESS)]
        messages[2]["reasoning_content"] = text
        # Mistral's templates compare messages by value, and take one that equals the last question for it.
        messages[-1]["content"] = f"and {text}"
        messages = shorter(messages)[number]
        ids = (await template.prompt(messages, tools)).ids
        assert markers_map.decode(ids) == await engine.apply_template(messages, tools)


@pytest.mark.parametrize("name", ["Qwen-Qwen2.5-7B-Instruct", "Qwen3.5-4B", "Kimi-K3"])
async def test_no_schema_of_a_tool_keeps_a_conversation_from_being_rendered(
    name: str, serve_template: Callable[[str], str], markers_map: TokenMap
) -> None:
    client = LlamaCpp(serve_template(name))
    template = ChatTemplate(client, await client.facts(), markers_map)
    for kind, schemas in CLASSES.items():
        tools = [
            {"type": "function", "function": {"name": f"f{n}_", "description": kind, "parameters": parameters}}
            for n, parameters in enumerate(schemas.values())
        ]
        text = markers_map.decode((await template.prompt([{"role": "user", "content": "hello"}], tools)).ids)
        assert all(f"f{n}_" in text for n in range(len(tools))), kind
    await client.aclose()


@pytest.mark.parametrize("name", ["File", "im_start", "a/b", "m~n", "<|im_end|>", "tool_call", "x y"])
@pytest.mark.parametrize("group", ["$defs", "definitions", "properties"])
def test_reference_is_shown_with_the_names_where_it_points(name: str, group: str, model_map: TokenMap) -> None:
    foreign = ForeignText(Signs(MarkerGuard(model_map.special_texts)))
    pointer = f"#/{group}/{name.replace('~', '~0').replace('/', '~1')}"
    references = [{"$ref": pointer}, {"$ref": f"{pointer}/anyOf/0"}]
    parameters = {"allOf": references, group: {name: {"anyOf": [{"type": "string"}]}}}

    shown = foreign.tools([{"function": {"name": "f", "parameters": parameters}}])[0]["function"]["parameters"]

    whole, option = (each["$ref"] for each in shown["allOf"])
    assert resolve(whole, shown) == {"anyOf": [{"type": "string"}]}
    assert resolve(option, shown) == {"type": "string"}
    assert whole.replace(foreign.separator, "") == pointer
