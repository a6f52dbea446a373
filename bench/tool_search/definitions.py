"""The tools that are searched: 120 of nine public servers, and the queries that each mean one of them.

Definitions are in `tests/third_party`. `queries.json` has a plain query and a paraphrase, which shares no word with the
name and description of its tool, for all tools but every sixth, counted so that `read_file`, which its server
deprecates, has none. All were written before the search was run once with any of them.
"""

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.proxy.naming import ToolEntry

_HERE: Final = Path(__file__).parent
_THIRD_PARTY: Final = _HERE.parents[1] / "tests" / "third_party"
_LISTS: Final = ("context7", "fetch", "filesystem", "git", "memory", "notion", "playwright", "time")
_KEPT: Final = ("name", "description", "inputSchema")


class Query(NamedTuple):
    """What somebody looks for."""

    tool: str
    """The tool that is meant: `server/name`."""
    plain: str
    paraphrase: str


def queries() -> list[Query]:
    """Read the queries."""
    return [Query(**each) for each in json.loads((_HERE / "queries.json").read_text(encoding="utf-8"))]


def definitions() -> dict[str, dict[str, Any]]:
    """Read the definitions, by `server/name`."""
    files = {name: _THIRD_PARTY / "tool_lists" / f"{name}.json" for name in _LISTS}
    files["github"] = _THIRD_PARTY / "github" / "tools.json"
    return {
        f"{server}/{tool['name']}": {key: tool[key] for key in _KEPT if key in tool}
        for server, file in sorted(files.items())
        for tool in json.loads(file.read_text(encoding="utf-8"))["tools"]
    }


def as_gateway() -> dict[str, ToolEntry]:
    """Return the tools as the gateway's own, which are named `server__tool`."""
    return {each: _entry(each, tool, each.partition("/")[0], "{}__{}") for each, tool in definitions().items()}


def as_client() -> dict[str, ToolEntry]:
    """Return the tools as Claude Code and others send them: the gateway is not told their servers."""
    return {each: _entry(each, tool, "", "mcp__{}__{}") for each, tool in definitions().items()}


def _entry(each: str, tool: dict[str, Any], server: str, form: str) -> ToolEntry:
    name = form.format(*each.split("/"))
    return ToolEntry(name, server, tool["name"], {**tool, "name": name})
