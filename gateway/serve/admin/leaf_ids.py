"""What one result of a tool says about its ids: shipped and good, shipped and bad, or none.

Turns a raw result into a word for people; the rules are those by which the gateway itself takes ids (`check_ids`). And
which tools may be tried for that: those that say they change nothing, and need no arguments. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from gateway.proxy.result_parts import TextPart, read_parts
from leaf_sdk.leaf.verify import check_ids
from leaf_sdk.vocab import TokenMap

_ID: Final = 80
_SHORT: Final = 19
"""Characters of a good map's id: `sha256:` and the first twelve digits."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Who makes the ids of a tool's results, as far as one call tells."""

    word: Literal["leaf", "shim", "refused", "unknown"]
    detail: str
    """Which map, or why."""


def can_be_tried(definition: Mapping[str, Any]) -> str | None:
    """None: the tool can be called to see what it answers. Otherwise why not."""
    annotations: object = definition.get("annotations")
    if not (isinstance(annotations, dict) and cast("dict[str, Any]", annotations).get("readOnlyHint") is True):
        return "it does not say that it changes nothing (readOnlyHint)"
    schema: object = definition.get("inputSchema")
    if not isinstance(schema, dict) or cast("dict[str, Any]", schema).get("required"):
        return "it needs arguments"
    return None


def judge(result: Mapping[str, Any], accepted: Mapping[str, TokenMap]) -> Judgement:
    """What the result says; `accepted`: map id to map, empty where none is configured."""
    if result.get("isError") is True:
        return Judgement("unknown", "it was called and answered with an error")
    texts = [part for part in read_parts(result, tuple(accepted)) if isinstance(part, TextPart) and part.index >= 0]
    if not texts:
        return Judgement("unknown", "it was called and answered without text")
    found = [_judge_text(text, accepted) for text in texts]
    # The worst word is the one that is worth reading.
    return min(found, key=lambda each: ("refused", "shim", "leaf").index(each.word))


def _judge_text(text: TextPart, accepted: Mapping[str, TokenMap]) -> Judgement:
    if text.malformed:
        return Judgement("refused", "what it sends in place of ids lacks map_id or the list of ids")
    if text.payload is None:
        return Judgement("shim", "it sends no ids; the gateway makes them")
    map_id = text.payload["map_id"]
    if not accepted:
        return Judgement("leaf", f"its ids are of map {map_id[:_ID]}; no map is loaded here to compare them with")
    token_map = accepted.get(map_id)
    if token_map is None:
        return Judgement("refused", f"its ids are of map {map_id[:_ID]}, which is not accepted here")
    rejection = check_ids(token_map, text.text, text.payload["ids"])
    if rejection is not None:
        return Judgement("refused", rejection.detail)
    return Judgement("leaf", f"its ids are good under map {map_id[:_SHORT]}…")
