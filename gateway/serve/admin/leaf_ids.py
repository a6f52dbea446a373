"""What one result of a tool tells about its ids: shipped and good, shipped and bad, or not shipped.

Turns a raw result into a word for people, by the rules under which the gateway itself accepts ids (`check_ids`). Also
says which tools may be called to find out: those that declare themselves read-only and need no arguments. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from gateway.proxy.result_tokens import TextPart, read_parts
from leaf_sdk.leaf.verify import check_ids
from leaf_sdk.vocab import TokenMap

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
