"""A tool's definition as real templates write it: cut out of one prompt, it is what another prompt has at its head."""

from collections.abc import Callable

import pytest

from gateway.context.history.template_messages import tool_definitions
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.rendering.template_forms import as_json
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import EngineRefused
from gateway.toolcalls.schema.spec import ToolSpec
from leaf_sdk.vocab import TokenMap

from .test_templates import TEMPLATES

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

TOOLS = (
    ToolSpec("zebra", "Tells about zebras", {"type": "object", "properties": {"value": {"type": "string"}}}),
    ToolSpec(
        "get_weather",
        'The weather of a "place",\nby day',
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Which\ncity"},
                "days": {"type": "array", "items": {"type": "integer"}},
                "unit": {"type": "string", "enum": ["C", "F"]},
            },
            "required": ["city"],
        },
    ),
    ToolSpec("aardwolf", "", {"type": "object", "properties": {}}),
)


OWN = {"Qwen3.5-4B", "Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "meta-llama-Llama-3.2-3B-Instruct"}
"""Templates whose own text must be found; where it can't be, or holds control tokens, a definition is JSON."""
QUESTION = [{"role": "user", "content": "?"}]
BETWEEN = {"ByteDance-Seed-OSS", "CohereForAI-c4ai-command-r-plus-tool_use"}
"""Templates that write lines between two definitions, which then end with these."""


@pytest.mark.parametrize("name", TEMPLATES)
async def test_definition_is_the_templates_own_text_or_json(
    serve_template: Callable[[str], str], markers_map: TokenMap, name: str
) -> None:
    client = LlamaCpp(serve_template(name))
    try:
        template = ChatTemplate(client, await client.facts(), markers_map)
        for definition in tool_definitions(TOOLS):
            text = await template.definition(definition)
            if text == as_json(definition):
                assert name not in OWN or name.startswith("Qwen")
                continue
            tool = definition["function"]["name"]
            others = tool_definitions([each for each in TOOLS if each.name != tool])
            assert tool in text
            try:
                prompt, without = [await client.apply_template(QUESTION, each) for each in ([definition], others)]
            except EngineRefused:
                # The template has no place for the schemas of the others.
                continue
            assert text not in without
            assert text in prompt or name in BETWEEN
    finally:
        await client.aclose()
