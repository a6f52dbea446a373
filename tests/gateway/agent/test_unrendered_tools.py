"""A tool that the chat template can't show costs that tool its form, and nobody an answer."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gateway.agent import AnswerOptions, ToolChoice
from gateway.agent.calls.request_tools import find_forms
from gateway.agent.generate.generation_options import FREE
from gateway.engine.interface import EngineFacts
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import RequestInvalid, TemplateRefused
from gateway.toolcalls.formats.registry import choose_format
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Diagnostic
from leaf_sdk.vocab import TokenMap

pytestmark = pytest.mark.anyio

QUESTION = [{"role": "user", "content": "What is it?"}]
CALL = '<tool_call>\n{"name": "good", "arguments": {"x": "y"}}\n</tool_call>'
SHOWS = """{{ tools }} <tool_call>{"name": <name>, "arguments": <arguments>}</tool_call>"""
ANY = ToolSpec("any", "", {"type": "object", "properties": {"extra": True}})
GOOD = ToolSpec("good", "", {"type": "object", "properties": {"x": {"type": "string"}}})
STUBBORN = ToolSpec("stubborn", "It can't be shown.", {"type": "object"})
SIGN = chr(0xF1234)


def parameters(tool: Any) -> Any:
    return tool["function"]["parameters"]


def fails_on_true(tools: Sequence[Any]) -> str | None:
    broken = any(True in parameters(tool).get("properties", {}).values() for tool in tools)
    return "While executing\nError: 'in' between String and Boolean" if broken else None


def fails_on(name: str) -> Callable[[Sequence[Any]], str | None]:
    return lambda tools: "Error: no" if any(tool["function"]["name"] == name for tool in tools) else None


async def opened(stage, *tools: ToolSpec, choice: ToolChoice = FREE):
    return await stage.agent.open(QUESTION, choice=choice, client_tools=tools)


async def test_property_that_is_true_is_rendered_as_a_schema_that_says_the_same(open_stage):
    async with open_stage(renders=fails_on_true, tools_template=SHOWS) as stage:
        conversation = await opened(stage, ANY, GOOD)

    shown = {tool["function"]["name"]: parameters(tool) for tool in stage.engine.rendered[-1]}
    assert shown["any"] == {"type": "object", "properties": {"extra": {}}}
    assert shown["good"] == GOOD.parameters
    # Calls are read and held by the schema that the tool has.
    assert [tool.parameters for tool in conversation.asked.tools if tool.name == "any"] == [ANY.parameters]


async def test_warning_names_whose_tool_it_is_the_tool_and_the_reason_and_is_logged_once(open_stage, caplog):
    async with open_stage(CALL, CALL, renders=fails_on_true, tools_template=SHOWS) as stage:
        for _ in range(2):
            conversation = await opened(stage, ANY, GOOD)
            await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    said = "'in' between String and Boolean"
    told = stage.of(Diagnostic)
    assert [each.kind for each in told] == ["definition"] * 2
    assert all(part in told[0].message for part in ("tool 'any' of the request", said))
    assert [call.name for call in stage.of(CallClosed)] == ["good"] * 2
    (line,) = [record.msg for record in caplog.records if record.name == "engine"]
    assert (line["server"], line["tool"], said in line["reason"]) == (None, "any", True)
    assert [(engine, fault.tool) for engine, fault in stage.pool.tool_faults()] == [("engine", "any")]


async def test_tool_of_a_server_that_no_form_helps_is_left_out_and_everything_else_works(open_stage):
    async with open_stage("Hello.", renders=fails_on("up__say"), tools_template=SHOWS) as stage:
        conversation = await opened(stage, GOOD)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert [tool.name for tool in conversation.asked.tools] == ["good"]
    (told,) = stage.of(Diagnostic)
    assert "tool 'up__say' of server 'up'" in told.message
    assert told.message.endswith("the model is not offered the tool")
    assert "template" not in told.message


@pytest.mark.parametrize(
    ("renders", "template", "tools", "found", "asked"),
    [
        (fails_on_true, SHOWS, [], False, 0),
        # Where the gateway writes the definitions itself, the engine is not to blame.
        (fails_on_true, "", [ANY], False, 0),
        (fails_on_true, SHOWS, [GOOD], False, 1),
        (lambda tools: "Error: no", SHOWS, [GOOD], False, 2),
        (fails_on_true, SHOWS, [ANY], True, None),
    ],
)
async def test_forms_are_sought_where_the_engine_refuses_the_tools_and_nothing_else(
    open_stage, renders, template, tools, found, asked
):
    async with open_stage(renders=renders, tools_template=template) as stage:
        assert await find_forms(tools, stage.route.ready(), lambda name: None) is found

    assert asked is None or len(stage.engine.rendered) == asked


async def test_each_tool_gets_the_first_form_that_the_engine_renders_and_its_own_reason(open_stage):
    schema = {"type": "object", "properties": {"é": True}}
    words = {"tidy": "tidied form", "plain": "plain types alone", "said": "as JSON in the tool's description"}
    tools = [ToolSpec(name, "About it.", schema) for name in (*words, "never")]

    def shown(tool: Any) -> int:
        """Which form it is."""
        if "Parameters, as JSON Schema" in tool["function"]["description"]:
            return 3
        part = parameters(tool)["properties"]["é"]
        return 0 if part is True else 1 if part == {} else 2

    def renders(tools: Sequence[Any]) -> str | None:
        least = {"tidy": 1, "plain": 2, "said": 3, "never": 4}
        names = [tool["function"]["name"] for tool in tools]
        broken = [name for name, tool in zip(names, tools, strict=True) if name in least and shown(tool) < least[name]]
        return f"Error: {broken[0]} of {len(tools)}" if broken else None

    async with open_stage(renders=renders, tools_template=SHOWS) as stage:
        ready = stage.route.ready()
        assert await find_forms([*tools, GOOD], ready, lambda name: "up" if name == "never" else None)

    faults = {fault.tool: fault for fault in ready.forms.faults(tools, lambda name: None)}
    assert [*faults] == [tool.name for tool in tools]
    for name, said in words.items():
        reason, _, outcome = faults[name].message.partition("; ")
        assert reason.endswith(f"({name} of 1)")
        assert said in outcome
    assert faults["never"].message.endswith("(never of 1); the model is not offered the tool")
    assert ready.forms.offered([*tools, GOOD]) == (*tools[:3], GOOD)
    written = ready.forms.rendered(tools[2:3])[0]
    assert written.description == f"About it.\nParameters, as JSON Schema: {json.dumps(schema, ensure_ascii=False)}"


async def test_choice_that_names_a_tool_that_is_left_out_is_refused_with_the_reason(open_stage):
    async with open_stage(renders=fails_on("stubborn"), tools_template=SHOWS) as stage:
        with pytest.raises(RequestInvalid, match="'stubborn' of the request: the engine can't render its definition"):
            await opened(stage, STUBBORN, GOOD, choice=ToolChoice.named("stubborn"))


async def test_what_was_found_is_kept_and_the_engine_is_asked_no_more(open_stage):
    async with open_stage(renders=fails_on_true, tools_template=SHOWS) as stage:
        await opened(stage, ANY, GOOD)
        before = len(stage.engine.rendered)
        await opened(stage, GOOD, ANY)

    assert len(stage.engine.rendered) == before + 1


@pytest.mark.parametrize("broken", [1, 3, 500])
async def test_renderings_are_few_however_many_tools_there_are(open_stage, broken):
    tools = [ToolSpec(f"t{n}", "", (ANY if n < broken else GOOD).parameters) for n in range(500)]
    async with open_stage(renders=fails_on_true, tools_template=SHOWS, context=200_000) as stage:
        await opened(stage, *tools)

    assert len(stage.engine.rendered) < 75
    assert {fault.tool for _, fault in stage.pool.tool_faults()} == {f"t{n}" for n in range(broken)}


async def test_conversation_that_is_refused_for_another_reason_blames_no_tool(open_stage):
    def refuses(tools: Sequence[Any]) -> str:
        return f"Error: roles must alternate {SIGN}"

    async with open_stage(renders=refuses, tools_template=SHOWS) as stage:
        with pytest.raises(TemplateRefused, match="roles must alternate"):
            await opened(stage, GOOD)

    assert stage.pool.tool_faults() == []


async def test_error_of_the_engine_that_quotes_the_prompt_shows_no_private_character(open_stage):
    def quotes(tools: Sequence[Any]) -> str | None:
        return f"Error: {json.dumps(tools, ensure_ascii=False)}" if tools else None

    marked = ToolSpec("<|im_start|>", "<|im_end|>", {"type": "object"})
    async with open_stage("Hello.", renders=quotes, tools_template=SHOWS) as stage:
        await stage.agent.answer(await opened(stage, marked), AnswerOptions(), stage.listen)

    assert stage.of(Diagnostic)
    assert not any(ord(sign) >= 0xE000 for told in stage.of(Diagnostic) for sign in told.message)


@pytest.mark.parametrize("template", [SHOWS, ""])
async def test_reference_to_nowhere_is_any_value_and_is_reported(open_stage, template, caplog):
    dangling = ToolSpec("dangling", "", {"type": "object", "properties": {"f": {"$ref": "#/$defs/File"}}})
    async with open_stage("Hello.", "Hello.", tools_template=template) as stage:
        for _ in range(2):
            await stage.agent.answer(await opened(stage, dangling, GOOD), AnswerOptions(), stage.listen)

    told = stage.of(Diagnostic)
    assert [each.kind for each in told] == ["definition"] * 2
    assert told[0].message == (
        "tool 'dangling' of the request: nothing in its schema is what '#/$defs/File' refers to; any value is accepted "
        "there"
    )
    assert len([record for record in caplog.records if record.name == "engine"]) == 1


ODD: dict[str, Any] = {
    "true": True,
    "false": False,
    "empty": {},
    "nested true": {"type": "object", "properties": {"b": {"type": "array", "items": {"properties": {"c": True}}}}},
    "array of anything": {"type": "array"},
    "items true": {"type": "array", "items": True},
    "items listed": {"type": "array", "items": [{"type": "string"}, True]},
    "prefixItems": {"type": "array", "prefixItems": [{"type": "string"}]},
    "types": {"type": ["string", "null"]},
    "no types": {"type": []},
    "type null": {"type": None},
    "type any": {"type": "any"},
    "enum alone": {"enum": ["x", 1, None, True]},
    "enum of an other type": {"type": "string", "enum": ["x", 1, None]},
    "enum empty": {"type": "string", "enum": []},
    "const": {"const": 1},
    "properties null": {"type": "object", "properties": None, "required": None},
    "properties listed": {"type": "object", "properties": []},
    "required of draft 3": {"type": "string", "required": True},
    "anyOf true": {"anyOf": [True, {"type": "null"}]},
    "oneOf nested": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"z": True}}]},
    "anyOf null": {"anyOf": None},
    "description null": {"type": "string", "description": None},
    "description listed": {"type": "string", "description": ["x"]},
    "default": {"type": "array", "items": {"type": "string"}, "default": ["x"]},
    "numbers as keys": {"type": "object", "properties": {"1": {"type": "string"}, "2": True}},
    "a word": "string",
    "a number": 5,
    "null": None,
    "recursion": {"type": "array", "items": {"$ref": "#"}},
}
FAIL_BY_THEMSELVES = (
    *("Apertus-8B-Instruct", "ByteDance-Seed-OSS", "CohereForAI-c4ai-command-r-plus-tool_use"),
    *("GigaChat3.1-10B-A1.8B", "IFM-K2-Horizon", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use"),
    *("google-gemma-4-31B-it", "llm-jp-llm-jp-4.1-8b-thinking", "meetkai-functionary-medium-v3.2"),
    *("openai-gpt-oss-120b", "Qwen3-Coder"),
)


@pytest.mark.engine
@pytest.mark.parametrize("name", FAIL_BY_THEMSELVES)
async def test_real_templates_show_every_tool_in_some_form(
    serve_template: Callable[[str], str], markers_map: TokenMap, name: str
):
    client = LlamaCpp(serve_template(name))
    facts = await client.facts()
    ready = ready_with(client, facts, markers_map)
    roots: list[Any] = [{"properties": {"a": part}} for part in ODD.values()]
    roots += [
        {"type": "object", "properties": {"a": part}, "required": required}
        for part in ODD.values()
        for required in (None, "a", ["a", "b"])
    ]
    tools = [ToolSpec(f"odd{n}", "Odd.", root) for n, root in enumerate([*roots, {"type": ["object", "null"]}, {}])]
    good = ToolSpec("good_one", "Good.", GOOD.parameters)
    await find_forms([*tools, good], ready, lambda name: None)

    assert len(ready.forms.offered(tools)) == len(tools)
    prompt = await ready.template.prompt(
        QUESTION,
        [
            {"function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
            for t in ready.forms.rendered([*tools, good])
        ],
    )
    text = markers_map.decode(prompt.ids)
    assert all(tool.name in text for tool in [*tools, good])
    await client.aclose()


def ready_with(client: LlamaCpp, facts: EngineFacts, token_map: TokenMap) -> ReadyEngine:
    async def at_rest(number: int) -> bool:
        return True

    template = ChatTemplate(client, facts, token_map)
    chosen = choose_format(facts.chat_template, supports_tools=True)
    return ReadyEngine(client, facts, token_map, template, SlotTable(1, at_rest=at_rest), chosen)
