"""Two tools in place of all: one finds tools, the other calls them.

A list of some hundred tools costs a model more tokens than its question. If the operator turns this on, clients see
only these two, and a model asks for the definitions that fit what it wants to do. Turns a query into the definitions
that share words with it, ranked by those words; rare words count more. A definition is split into words once, by the
first search: with thousands of long ones that takes seconds, so callers search in a thread. Pure.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from gateway.config.overrides import OWN_TOOLS
from gateway.proxy.naming import ToolEntry

SEARCH, CALL = OWN_TOOLS
DEFINITIONS: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": SEARCH,
        "description": "Find tools by what they do. Returns the names, descriptions and input schemas of the tools "
        f"that fit best; call one of them with {CALL}.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in a few words."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 8},
            },
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": CALL,
        "description": f"Call a tool that {SEARCH} found.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The tool's name, as the search returned it."},
                "arguments": {"type": "object", "description": "Its arguments, as its input schema describes them."},
            },
            "required": ["name"],
        },
    },
)
NAMES: Final = frozenset(OWN_TOOLS)
_MOST: Final = 50
_USUAL: Final = 8
_QUERY: Final = 2000
_WANTED: Final = 64
"""Maximum number of different words of a query."""
_WORD: Final = re.compile(r"[a-z]+|\d+|[^\W\d_a-z]+", re.IGNORECASE)
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_IN_NAME: Final = 3.0
_IN_TEXT: Final = 1.0
_IN_PARAMETERS: Final = 0.5


def search(entries: Sequence[ToolEntry], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CallToolResult of a search: the best definitions first, as JSON text and as structured content."""
    query, limit = arguments.get("query"), arguments.get("limit")
    most = min(limit, _MOST) if isinstance(limit, int) and limit > 0 else _USUAL
    found = [entry.definition for entry in rank(entries, query if isinstance(query, str) else "")[:most]]
    text = "\n".join(json.dumps(definition, ensure_ascii=False, separators=(",", ":")) for definition in found)
    content = text or f"none of the {len(entries)} tools matches this query; try other words"
    return {"content": [{"type": "text", "text": content}], "structuredContent": {"tools": found}}


def called(name: str, arguments: str) -> tuple[str, str]:
    """The tool that a call is for and its arguments as JSON text, also where `codec_call_tool` stands in between."""
    if name != CALL:
        return name, arguments
    try:
        given: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return name, arguments
    asked = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return str(asked.get("name")), json.dumps(asked.get("arguments") or {}, ensure_ascii=False)


def rank(entries: Sequence[ToolEntry], query: str) -> list[ToolEntry]:
    """The tools that share a word with the query, best first; tools with equal scores keep their order."""
    bags = [_bag(entry) for entry in entries]
    wanted = list(dict.fromkeys(_words(query[:_QUERY])))[:_WANTED]
    seen = {word: sum(word in bag for bag in bags) for word in wanted}
    rarity = {word: math.log(1 + len(bags) / seen[word]) for word in wanted if seen[word]}
    scored = [(sum(rarity[word] * bag[word] for word in rarity.keys() & bag.keys()), n) for n, bag in enumerate(bags)]
    return [entries[n] for score, n in sorted(scored, key=lambda pair: (-pair[0], pair[1])) if score > 0]


def _bag(entry: ToolEntry) -> dict[str, float]:
    """The weight of each of the tool's words."""
    if not entry.words:
        entry.words.update(_weighted(entry))
    return entry.words


def _weighted(entry: ToolEntry) -> dict[str, float]:
    bag: dict[str, float] = {}
    schema: object = entry.definition.get("inputSchema")
    properties: object = cast("dict[str, Any]", schema).get("properties") if isinstance(schema, dict) else None
    parameters = " ".join(map(str, cast("dict[str, Any]", properties))) if isinstance(properties, dict) else ""
    title = f"{entry.definition.get('title') or ''} {entry.definition.get('description') or ''}"
    for weight, text in ((_IN_PARAMETERS, parameters), (_IN_TEXT, title), (_IN_NAME, entry.name)):
        for word in _words(text):
            bag[word] = max(bag.get(word, 0.0), weight)
    return bag


def _words(text: str) -> list[str]:
    """Words in lower case and without a plural's `s`; `getTime` and `get_time` give the same."""
    words = [word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text))]
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]
