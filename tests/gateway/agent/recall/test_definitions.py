"""Definitions of tools in what real templates write: each is found whole, with its tool."""

import json
from collections.abc import Callable

import pytest

from gateway.context.compose.id_sources import Definitions
from gateway.context.history.template_messages import tool_definitions
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from leaf_sdk.vocab import TokenMap

from .talk import TOOLS

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


@pytest.mark.parametrize("name", ["Qwen-Qwen3-0.6B", "Qwen3.5-4B", "ibm-granite-granite-4.0"])
async def test_definitions_that_a_real_template_writes_are_found(
    serve_template: Callable[[str], str], markers_map: TokenMap, name: str
) -> None:
    client = LlamaCpp(serve_template(name))
    try:
        template = ChatTemplate(client, await client.facts(), markers_map)
        asked = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What?"}]
        prompt = await template.prompt(asked, tool_definitions(TOOLS))
    finally:
        await client.aclose()

    spans = Definitions(TOOLS, markers_map, {"get_weather": "weather"}).spans(prompt.ids, "template")
    assert sum(span.count for span in spans) == len(prompt.ids)
    found: dict[str | None, str] = {}
    at = 0
    for span in spans:
        if span.source == "tools":
            found[span.tool] = markers_map.decode(prompt.ids[at : at + span.count])
            assert span.server == ("weather" if span.tool == "get_weather" else None)
        at += span.count
    assert list(found) == [tool.name for tool in TOOLS]
    for tool, text in found.items():
        definition = json.loads(text.rstrip(",\n "))
        assert definition.get("function", definition)["name"] == tool
