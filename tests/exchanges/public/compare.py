"""What other people's clients got of the servers, directly and through the gateway: what differs that may not.

Pure. What may differ: the gateway puts a server's name before the names of its tools and prompts, it answers lists that
a server does not offer with none, and how long a call took.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Said = Mapping[str, Any]
"""What a client got, by server (or, of an agent, by tool)."""
_NOT_OFFERED = -32601
_SECONDS = re.compile(r"Wall time: [\d.]+ seconds")
_LONGEST = 500


def differences(direct: Said, through: Said) -> Iterator[str]:
    """Give a line for each part that is not as it was directly."""
    for name in sorted({*direct, *through}):
        want, got = direct.get(name), through.get(name)
        if isinstance(want, dict) and isinstance(got, dict):
            parts = [(f"{name}: {part}", want.get(part), got.get(part)) for part in sorted({*want, *got})]
        else:
            parts = [(name, want, got)]
        yield from (f"{what}: expected {_short(a)}, got {_short(b)}" for what, a, b in parts if a != b)


def even(said: Said) -> dict[str, Any]:
    """Give what a client of an SDK or the Inspector got, by server, without what may differ."""
    return {name: {part: _part(name, value) for part, value in parts.items()} for name, parts in said.items()}


def even_agent(tools: Said, results: Said, servers: Mapping[str, Any]) -> dict[str, Any]:
    """Give what an agent offered its model of the servers, and what the calls gave, without what may differ."""
    offered = {_own_name(name, servers): offer for name, offer in tools.items() if name.startswith("mcp_")}
    return {**offered, **{f"call of {name}": _masked(_without_prefix(name, said)) for name, said in results.items()}}


def _part(name: str, value: Any) -> Any:
    if _is_refused(value):
        return []
    if isinstance(value, dict) and len(value) == 1:
        (items,) = value.values()
        value = items if isinstance(items, list) and "content" not in value else value
    return _without_prefix(name, value)


def _is_refused(value: Any) -> bool:
    """Whether a list is answered with "method not found"; the Inspector says so in words."""
    if not isinstance(value, dict):
        return False
    return value.get("error") == _NOT_OFFERED or "Method not found" in value.get("said", "")


def _without_prefix(name: str, value: Any) -> Any:
    return json.loads(json.dumps(value).replace(f"{name}__", ""))


def _own_name(tool: str, servers: Mapping[str, Any]) -> str:
    for name in servers:
        for head in (f"mcp__{name}__", f"mcp_{name}_"):
            if tool.startswith(f"{head}{name}__"):
                return tool.replace(f"{name}__", "", 1) if head == f"mcp_{name}_" else tool.replace(head, "mcp__", 1)
    return tool


def _masked(value: Any) -> Any:
    return json.loads(_SECONDS.sub("Wall time", json.dumps(value)))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
