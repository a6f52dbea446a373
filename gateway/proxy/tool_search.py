"""Two tools in place of all: one finds tools, the other calls them.

A list of some hundred tools costs a model more tokens than its question. If the operator turns this on, clients see
only these two, and a model asks for the definitions that fit what it wants to do. Turns a query into the definitions
that share words with it, ranked by BM25 over the words of names, servers, descriptions and parameters. A definition is
split into words once, by the first search: with thousands of long ones that takes seconds, so callers search in a
thread. Pure.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
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
FINDER: Final[dict[str, Any]] = {
    **DEFINITIONS[0],
    "description": "Find tools by what they do. Returns the definitions of those that fit best; from then on you can "
    "call them.",
}
"""The search as a model on `/v1` gets it, which calls what it finds by its own name."""
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
_READ: Final = 8192
"""Characters of a tool's texts that are searched: a longer one would hold up everything else while it is split."""
_SATURATION: Final = 1.2
"""BM25's `k1`."""
_LENGTH: Final = 0.3
"""BM25's `b`: long descriptions of tools say more, and are not diluted."""
_STOP_WORDS: Final = frozenset(
    (
        *("a", "all", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "for", "from", "has", "have"),
        *("how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "of", "on", "one", "or", "our", "that", "the"),
        *("their", "them", "then", "there", "these", "this", "to", "was", "we", "what", "when", "where", "which"),
        *("will", "with", "you", "your"),
    )
)
_NO_WORDS: Final = frozenset[str]()


def search(entries: Sequence[ToolEntry], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CallToolResult of a search: the best definitions first, as JSON text and as structured content."""
    query, limit = arguments.get("query"), arguments.get("limit")
    most = min(limit, _MOST) if isinstance(limit, int) and limit > 0 else _USUAL
    found = [entry.definition for entry in rank(entries, query if isinstance(query, str) else "")[:most]]
    text = "\n".join(json.dumps(definition, ensure_ascii=False, separators=(",", ":")) for definition in found)
    content = text or no_match(len(entries))
    return {"content": [{"type": "text", "text": content}], "structuredContent": {"tools": found}}


def no_match(count: int) -> str:
    """What a search says that found none of so many tools."""
    return f"none of the {count} tools matches this query; try other words"


def rank(entries: Sequence[ToolEntry], query: str, least: int = 1) -> list[ToolEntry]:
    """The tools that share `least` words with the query, best first; tools with equal scores keep their order."""
    scored = zip(scores(entries, query, least), range(len(entries)), strict=True)
    return [entries[n] for score, n in sorted(scored, key=lambda pair: (-pair[0], pair[1])) if score > 0]


def scores(entries: Sequence[ToolEntry], query: str, least: int = 1) -> list[float]:
    """How well each tool fits a query, from 0 to the 1 that no tool reaches; 0 where fewer than `least` words agree."""
    bags = [_bag(entry) for entry in entries]
    asked = query[:_QUERY]
    wanted = list(dict.fromkeys(_words(asked) or _words(asked, _NO_WORDS)))[:_WANTED]
    seen = {word: sum(word in bag for bag in bags) for word in wanted}
    rarity = {word: math.log(1 + (len(bags) - n + 0.5) / (n + 0.5)) for word, n in seen.items()}
    best = sum(rarity.values()) or 1.0
    known = {word for word, n in seen.items() if n}
    sizes = [sum(bag.values()) for bag in bags] if known else [0.0] * len(bags)
    usual = sum(sizes) / max(len(sizes), 1) or 1.0
    found: list[float] = []
    for bag, size in zip(bags, sizes, strict=True):
        longer = _SATURATION * (1 - _LENGTH + _LENGTH * size / usual)
        shared = known & bag.keys()
        weights = ((rarity[word], bag[word]) for word in (shared if len(shared) >= least else ()))
        found.append(sum(rare * weight / (weight + longer) for rare, weight in weights) / best)
    return found


def _bag(entry: ToolEntry) -> dict[str, float]:
    """The weight of each of the tool's words."""
    if not entry.words:
        entry.words.update(_weighted(entry))
    return entry.words


def _weighted(entry: ToolEntry) -> dict[str, float]:
    bag: dict[str, float] = {}
    title = f"{entry.server} {entry.definition.get('title') or ''} {entry.definition.get('description') or ''}"
    parameters = " ".join(islice(_parameters(entry.definition.get("inputSchema")), _READ))
    for weight, text in ((_IN_PARAMETERS, parameters), (_IN_TEXT, title), (_IN_NAME, entry.name)):
        # A name keeps all of its words: a tool may be called `do` or `for_all`.
        for word in _words(text[:_READ], _NO_WORDS if text is entry.name else _STOP_WORDS):
            bag[word] = bag.get(word, 0.0) + weight
    return bag


def _parameters(schema: object) -> Iterator[str]:
    """The names and descriptions of a schema's properties."""
    properties: object = cast("dict[str, Any]", schema).get("properties") if isinstance(schema, dict) else None
    for name, value in cast("dict[str, object]", properties).items() if isinstance(properties, dict) else ():
        yield str(name)
        if isinstance(value, dict):
            yield str(cast("dict[str, object]", value).get("description") or "")


def _words(text: str, without: frozenset[str] = _STOP_WORDS) -> list[str]:
    """Stems of words in lower case, without those that say nothing; `getTime` and `get_time` give the same."""
    words = (word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text)))
    return [_stem(word) for word in words if word not in without]


def _stem(word: str) -> str:
    """A word without the endings of English plurals and verbs: `creates`, `created` and `creating` become `creat`."""
    for ending, least in (("ing", 6), ("ed", 5), ("ies", 5), ("s", 4)):
        if len(word) >= least and word.endswith(ending) and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending == "ies" else "")
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
