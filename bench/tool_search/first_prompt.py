"""How many tokens the first prompt takes with 120 tools, deferred and not, by the templates of two families.

Asks a gateway over the embedded engine to count; nothing is generated.
"""

import json
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.processes import serving_gateway
from bench.tool_search.definitions import as_client

_TEMPLATES: Final = Path(__file__).parents[2] / "tests" / "third_party" / "chat_templates"
FAMILIES: Final[Mapping[str, Path | None]] = {
    "smollm2": None,
    "qwen2.5": _TEMPLATES / "Qwen-Qwen2.5-7B-Instruct.jinja",
    "qwen3": _TEMPLATES / "Qwen-Qwen3-0.6B.jinja",
}
"""Templates by family; None: the packaged model's own."""
_SEARCH: Final = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
_ASK: Final = {"role": "user", "content": "Which of my pull requests wait for a review?"}


def first_prompts() -> dict[str, Any]:
    """Return the tokens of the first prompt by family: without tools, with all, and with all of them deferred."""
    return {family: _counted(template) for family, template in FAMILIES.items()}


def _counted(template: Path | None) -> dict[str, int]:
    chosen = "" if template is None else f"chat_template = {json.dumps(str(template))}\n"
    # `never`: what the client defers is measured, not what the gateway would.
    settings = f'[engine]\nkind = "embedded"\n{chosen}[agent]\ndefer_client_tools = "never"\n'
    tools = [
        {"name": entry.name, "description": entry.definition.get("description", ""),
         "input_schema": entry.definition["inputSchema"]}
        for entry in as_client().values()
    ]  # fmt: skip
    asked = {
        "without_tools": [],
        "all": tools,
        "deferred": [_SEARCH, *({**tool, "defer_loading": True} for tool in tools)],
    }
    with tempfile.TemporaryDirectory() as folder, serving_gateway(Path(folder), {}, settings=settings) as gateway:
        return {name: _count(gateway.url, each) for name, each in asked.items()}


def _count(url: str, tools: list[dict[str, Any]]) -> int:
    body = {"model": "any", "messages": [_ASK], **({"tools": tools} if tools else {})}
    request = urllib.request.Request(
        f"{url}/v1/messages/count_tokens", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["input_tokens"]
