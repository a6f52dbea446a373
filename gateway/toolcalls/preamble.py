"""The system text that teaches tools to a model whose chat template does not support them (SmolLM2).

Lists the tools as JSON and shows one call in the format's own shape. Names, descriptions and schemas come from upstream
servers and are not trusted: each `<` in them is written as its JSON escape, so that no description can close the list,
open a call, or spell a control token.
"""

import json
import re
from collections.abc import Sequence

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.schema.spec import ToolSpec

_TEXT = """\
You are a helpful assistant. You can call these tools:
{tools}

To call a tool, write:
{shape}
Answer in one short sentence from the tool's result."""


def system_preamble(fmt: Format, tools: Sequence[ToolSpec]) -> str:
    """Return the text for the system message; "" when there are no tools."""
    if not tools:
        return ""
    return _TEXT.format(tools="\n".join(map(describe_tool, tools)), shape=fmt.shape)


def call_text(fmt: Format, name: str, arguments: str) -> str:
    """Write a call as the format's model would: for the history of a model whose template does not support calls.

    `arguments` is JSON text and is not changed.
    """
    # The name first: an escaped name can't contain the placeholder of the arguments, but arguments may contain TOOL.
    # Only as a whole word, since markers may contain it ([TOOL_CALLS]).
    named = re.sub(r"\bTOOL\b", lambda _: json.dumps(name, ensure_ascii=False)[1:-1], fmt.shape)
    return named.replace(json.dumps({"KEY": "VALUE"}), arguments)


def describe_tool(tool: ToolSpec) -> str:
    """Return a definition as the system text lists it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    line = json.dumps(function, ensure_ascii=False, default=dict)
    return line.replace("<", "\\u003c").encode("utf-8", "replace").decode()
