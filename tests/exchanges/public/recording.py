"""What the servers said directly, in short: kept in `recording.json`, played back by `tests.exchanges.replay`.

Of each list the smallest items are kept, and the tool that is called. The suite has no npm and fetches nothing.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.exchanges.public.catalog import SERVERS, WORK

FILE: Final = Path(__file__).with_name("recording.json")
LISTS: Final = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}
_KEPT: Final = 3


def write(said: Mapping[str, Any], work: str) -> None:
    """Keep what a client got of the servers. `work`: the folder that they read."""
    kept = {name: _short(SERVERS[name].tool, parts) for name, parts in said.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(parts, ensure_ascii=False)}" for name, parts in kept.items())
    FILE.write_text("{\n" + ",\n".join(lines).replace(work, WORK) + "\n}\n", encoding="utf-8")


def read() -> dict[str, dict[str, Any]]:
    """Give what was kept, by server."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def replayed(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Give it as `tests.exchanges.replay` plays it."""
    capabilities = {kind: {} for kind in ("tools", "prompts", "resources") if parts[kind]}
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "serverInfo": {"name": "r", "version": "1"},
    }
    lists = [_exchange(method, {"result": {field: parts[kind]}}) for kind, (method, field) in LISTS.items()]
    call = parts["call"]
    ended = {"error": call["error"]} if "error" in call else {"result": call}
    return {"greeting": greeting, "aside": [], "exchanges": [*lists, _exchange("tools/call", ended)]}


def _exchange(method: str, ended: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": method, "method": method, "heard": [], **ended}


def _short(tool: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    called = [each for each in parts["tools"] if each["name"] == tool]
    short = {kind: sorted(parts[kind], key=_size)[:_KEPT] for kind in LISTS}
    tools = [*called, *(each for each in short["tools"] if each not in called)][:_KEPT]
    return {**short, "tools": tools, "call": parts["call"]}


def _size(item: Any) -> int:
    return len(json.dumps(item))
