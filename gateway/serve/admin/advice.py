"""Advice: on a server that works, and on definitions that cost many tokens.

Turns one server's configuration and tools into sentences. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from gateway.agent.calls.request_tools import is_heavy
from gateway.config.address import is_secure
from gateway.config.gateway_config import UpstreamConfig
from gateway.engine.rendering.template_forms import nowhere
from gateway.escape import escape_text
from gateway.proxy.naming import ToolEntry
from gateway.proxy.result_tokens import TextPart, read_parts
from gateway.proxy.upstream.items.item_reader import MalformedField
from gateway.toolcalls.schema.keywords import dead_references
from leaf_sdk.leaf.verify import check_ids
from leaf_sdk.vocab import TokenMap

# Ids are judged by the rules under which the gateway itself accepts them (`check_ids`). Only tools that declare
# themselves read-only and need no arguments may be called to find out.

_ID: Final = 80
_SHORT: Final = 19
"""Characters shown of the map's id where the ids are good: `sha256:` and the first twelve digits."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Who makes the ids of a tool's results, as far as one call can tell."""

    word: Literal["leaf", "shim", "refused", "unknown"]
    detail: str
    """Which map, or why."""


def can_be_tried(definition: Mapping[str, Any]) -> str | None:
    """Why the tool can't be called just to see its answer; None if it can."""
    annotations: object = definition.get("annotations")
    if not (isinstance(annotations, dict) and cast("dict[str, Any]", annotations).get("readOnlyHint") is True):
        return "it was not called: it is not declared read-only (readOnlyHint)"
    schema: object = definition.get("inputSchema")
    if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("required"):
        return "it was not called: it needs arguments"
    return None


def judge(result: Mapping[str, Any], accepted: Mapping[str, TokenMap]) -> Judgement:
    """What the result tells. `accepted`: maps by map id, empty if none is configured."""
    if result.get("isError") is True:
        return Judgement("unknown", "the call returned an error")
    texts = [part for part in read_parts(result, tuple(accepted)) if isinstance(part, TextPart) and part.index >= 0]
    if not texts:
        return Judgement("unknown", "the call returned no text")
    found = [_judge_text(text, accepted) for text in texts]
    # The worst judgement is the one worth reporting.
    return min(found, key=lambda each: ("refused", "shim", "leaf").index(each.word))


def _judge_text(text: TextPart, accepted: Mapping[str, TokenMap]) -> Judgement:
    if text.malformed:
        return Judgement("refused", "its tokenization lacks map_id or the list of ids")
    if text.payload is None:
        return Judgement("shim", "it sends no ids; the gateway makes them")
    map_id = text.payload["map_id"]
    if not accepted:
        return Judgement("leaf", f"its ids belong to map {map_id[:_ID]}; no map is loaded here to check them against")
    token_map = accepted.get(map_id)
    if token_map is None:
        return Judgement("refused", f"its ids belong to map {map_id[:_ID]}, which this gateway does not accept")
    rejection = check_ids(token_map, text.text, text.payload["ids"])
    if rejection is not None:
        return Judgement("refused", rejection.detail)
    return Judgement("leaf", f"its ids are valid for map {map_id[:_SHORT]}…")


_MANY_TOKENS: Final = 10_000
_SHOWN: Final = 100
_REASON: Final = 300
_LISTED: Final = 5
_SENTENCES: Final = 20


def advice_for(
    upstream: UpstreamConfig,
    entries: Sequence[ToolEntry],
    found: Mapping[str, tuple[int, Judgement]],
    invalid: Mapping[str, str],
    malformed: Sequence[MalformedField] = (),
    aliases: Mapping[str, str | None] | None = None,
) -> Iterator[str]:
    """Sentences about one server.

    Args:
        found: by a tool's public name, the number of tokens of its definition and the judgement of its ids.
        invalid: by a tool's own name, the reason why it is not offered.
        malformed: what clients could not have read of its lists as they came.
        aliases: by public name, under what models are offered tools whose names model APIs refuse; None: their names.
    """
    if _tells_secrets(upstream):
        yield "its credentials are sent unencrypted: use its https address"
    if aliases:
        yield _on_names(aliases)
    silent = [entry.name for entry in entries if not entry.definition.get("description")]
    if silent:
        yield f"tools without a description: {_join(silent)}; add one with `overrides.TOOL.description`"
    cost = sum(tokens for tokens, _ in found.values())
    if cost > _MANY_TOKENS:
        yield (
            f"its tools take {cost} tokens of every request: leave some out (`include`, `exclude`), "
            "or let models search for them (`tool_search = true`)"
        )
    for entry in entries:
        if dead := dead_references(entry.spec.parameters):
            yield f"tool {escape_text(entry.name, _SHOWN)!r}: {escape_text(nowhere(dead), _REASON)}"
    for name, why in invalid.items():
        yield f"{escape_text(name, _SHOWN)!r} is not offered: {escape_text(why, _REASON)}"
    yield from _on_malformed(malformed)
    for name, (_, ids) in found.items():
        if ids.word == "refused":
            yield f"the ids of {escape_text(name, _SHOWN)!r} are not used: {ids.detail}"


def _on_names(aliases: Mapping[str, str | None]) -> str:
    names = [name if alias is None else f"{name} (alias {alias})" for name, alias in aliases.items()]
    how = "models on /v1 get the aliases, and MCP clients too with `safe_names = true`"
    if None in aliases.values():
        how = 'use `overrides.TOOL.name`, or `safe_names = "auto"`'
    return f"tool names that model APIs refuse (allowed: 1 to 64 of A-Z a-z 0-9 _ -): {_join(names)}; {how}"


def _on_malformed(malformed: Sequence[MalformedField]) -> Iterator[str]:
    """A sentence for each kind of flaw, with the items that have it."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for each in malformed:
        # A tool that is left out is told as one that is not offered.
        if not (each.left_out and each.kind == "tools"):
            what = f"{each.field}: {each.reason}" if each.field else each.reason
            found.setdefault((each.kind, what, " (left out)" if each.left_out else ""), []).append(each.item)
    for (kind, what, end), items in list(found.items())[:_SENTENCES]:
        yield f"malformed in the list of {kind}: {_join(items)}: {escape_text(what, _REASON)}{end}"
    if len(found) > _SENTENCES:
        yield f"{len(found) - _SENTENCES} more kinds of malformed fields in its lists"


def advice_on_context(tokens: int, context: int | None, search: bool | Literal["auto"]) -> str | None:
    """A sentence if the definitions of all tools take more than a quarter of the engine's context, else None."""
    if context is None or not is_heavy(tokens, context):
        return None
    taken = f"the definitions of all tools take about {tokens} tokens of a context of {context}"
    if search is False:
        return f'{taken}: offer fewer (`include`, `exclude`), or let models search for them (`tool_search = "auto"`)'
    return f"{taken}: models on /v1 get a search tool instead (`tool_search`)"


def _tells_secrets(upstream: UpstreamConfig) -> bool:
    return upstream.url is not None and bool(upstream.headers or upstream.oauth) and not is_secure(upstream.url)


def _join(names: Sequence[str]) -> str:
    shown = ", ".join(escape_text(name, _SHOWN) for name in names[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown
