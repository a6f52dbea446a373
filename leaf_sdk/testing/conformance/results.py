"""What a tool answered, to verdicts: every rule of the leaf contract that a result alone can keep or break.

A result is the raw object that was received, so that faults are seen as they are. It is judged under the maps that the
author gave; ids of other maps can't be judged, and are reported as unknown. Calls nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from leaf_sdk.errors import CodecError, LeafResultInvalid, MapHashMalformed
from leaf_sdk.leaf import MetaTokenizer, check_ids, strip_codec_meta, wrap_tool_call
from leaf_sdk.leaf.contract import CODEC_META_KEY, LEGACY_BLOCK_TYPE, LeafPayload
from leaf_sdk.leaf.packing import PACKED_KEY
from leaf_sdk.leaf.payload import payload_of, payloads_of
from leaf_sdk.leaf.shapes import blocks_of, field, meta_of, text_of
from leaf_sdk.vocab import TokenMap, normalise_hash

from .verdict import Verdict, verdict_of

_RULES = {"special": "no control tokens in ids", "text": "ids decode to the text"}
_SHAPE_RULE = "ids are ids of the map"
_END_OF_TURN = "<|im_end|>"


@dataclass(frozen=True, slots=True)
class _Shipped:
    """The ids of one text under one map."""

    where: str
    text: str
    payload: LeafPayload
    spelled: str
    """The map's name as it was written."""


def carries_ids(result: Mapping[str, Any]) -> bool:
    """Return whether a result has anything to do with the leaf contract, even if it breaks it."""
    try:
        blocks = blocks_of(result)
    except LeafResultInvalid:
        return False
    return any(CODEC_META_KEY in meta_of(each) or field(each, "type") == LEGACY_BLOCK_TYPE for each in blocks)


def marker_of(maps: Sequence[TokenMap]) -> str:
    """Return the text of a control token to try a tool with: the one that ends a turn, if a map has it."""
    names = {name for token_map in maps for name in token_map.special_texts}
    return _END_OF_TURN if _END_OF_TURN in names or not names else min(names)


def judge_result(tool: str, result: Mapping[str, Any], maps: Sequence[TokenMap]) -> list[Verdict]:
    """Judge one result.

    Args:
        tool: the tool's name in verdicts.
        result: the whole result of `tools/call`, as it was received.
        maps: the maps that ids can be judged under.

    Returns:
        The verdicts; none on ids if the result has no ids.
    """
    try:
        blocks = blocks_of(result)
    except LeafResultInvalid as error:
        return [Verdict("result is valid MCP", "fail", error.message, tool)]
    if not carries_ids(result):
        return [_wrapping(tool, result, maps)] if maps else []
    shipped = _shipped(blocks)
    verdicts = [_payloads(tool, blocks), _every_text(tool, blocks), *_names(tool, shipped, maps)]
    by_id = {token_map.map_id: token_map for token_map in maps}
    judged = [(each, by_id[each.payload["map_id"]]) for each in shipped if each.payload["map_id"] in by_id]
    if judged:
        verdicts += _ids(tool, judged)
        verdicts += [_canonical(tool, judged), _markers(tool, judged), _wrapping(tool, result, maps)]
    return verdicts


def _shipped(blocks: Sequence[object]) -> list[_Shipped]:
    shipped: list[_Shipped] = []
    for index, block in enumerate(blocks):
        text, value = text_of(block), meta_of(block).get(CODEC_META_KEY)
        if text is not None:
            shipped += [_Shipped(f"content[{index}]", text, each, _spelled(value, each)) for each in payloads_of(value)]
    return shipped


def _spelled(value: object, payload: LeafPayload) -> str:
    """Return the first payload's map name as it was written; those inside it are read in their normal form."""
    written = field(value, "map_id")
    return written if isinstance(written, str) and payload_of(value) == payload else payload["map_id"]


def _payloads(tool: str, blocks: Sequence[object]) -> Verdict:
    faults: list[str] = []
    for index, block in enumerate(blocks):
        value = meta_of(block).get(CODEC_META_KEY)
        if field(block, "type") == LEGACY_BLOCK_TYPE:
            faults.append(
                f"content[{index}] is a {LEGACY_BLOCK_TYPE!r} block, which MCP refuses; put ids into the text's _meta"
            )
        elif CODEC_META_KEY in meta_of(block) and text_of(block) is None:
            faults.append(f"content[{index}] carries ids but is not text")
        elif CODEC_META_KEY in meta_of(block) and payload_of(value) is None:
            faults.append(f"content[{index}] carries {value!r:.80}, expected an object with map_id and ids")
        elif isinstance(value, Mapping) and PACKED_KEY in value:
            faults.append(f"content[{index}] carries packed ids, which the client did not ask for")
    return verdict_of("payloads are well-formed", faults, "an object with map_id and ids on each text", tool)


def _every_text(tool: str, blocks: Sequence[object]) -> Verdict:
    texts = [(index, block) for index, block in enumerate(blocks) if text_of(block)]
    bare = [f"content[{index}] has no ids" for index, block in texts if CODEC_META_KEY not in meta_of(block)]
    return verdict_of("every text carries ids", bare, f"{len(texts)} of {len(texts)} texts", tool, outcome="warn")


def _names(tool: str, shipped: Sequence[_Shipped], maps: Sequence[TokenMap]) -> list[Verdict]:
    malformed = [f"{each.where} names map {each.spelled!r:.90}" for each in shipped if not _is_hash(each.spelled)]
    verdicts = [verdict_of("map ids are hashes", malformed, "sha256 and 64 hex digits", tool)]
    known = {token_map.map_id for token_map in maps}
    strangers = sorted({each.payload["map_id"] for each in shipped} - known)
    if not maps:
        return [*verdicts, Verdict("map is known", "skip", f"give --map for {', '.join(strangers):.90}", tool)]
    own = [each for each in shipped if each.payload["map_id"] in known]
    faults = (
        [] if own else [f"the ids are of map {strangers[0]!r:.90}, expected {sorted(known)[0]!r}"] if strangers else []
    )
    return [*verdicts, verdict_of("map is known", faults, "ids of a map that was given", tool)]


def _ids(tool: str, judged: Sequence[tuple[_Shipped, TokenMap]]) -> list[Verdict]:
    faults: dict[str, list[str]] = {_SHAPE_RULE: [], **{rule: [] for rule in _RULES.values()}}
    for each, token_map in judged:
        rejection = check_ids(token_map, each.text, each.payload["ids"])
        if rejection is not None:
            faults[_RULES.get(rejection.reason, _SHAPE_RULE)].append(f"{each.where}: {rejection.detail}")
    count = sum(len(each.payload["ids"]) for each, _ in judged)
    return [verdict_of(rule, faults[rule], f"{count} ids", tool) for rule in faults]


def _canonical(tool: str, judged: Sequence[tuple[_Shipped, TokenMap]]) -> Verdict:
    """Compare with the map's own ids: others may spell the same text, but no model has seen it split like that."""
    faults = [
        f"{each.where}: its {len(each.payload['ids'])} ids are not the {len(expected)} that the map gives"
        for each, token_map in judged
        if (expected := _encoded(token_map, each.text)) is not None and expected != each.payload["ids"]
    ]
    return verdict_of("ids are those that the map gives", faults, "each as the map tokenizes it", tool, outcome="warn")


def _markers(tool: str, judged: Sequence[tuple[_Shipped, TokenMap]]) -> Verdict:
    rule = "a control token in text stays text"
    spelling = [pair for pair in judged if any(name in pair[0].text for name in pair[1].special_texts)]
    if not spelling:
        return Verdict(rule, "skip", f"no text spells one; call the tool with {marker_of([judged[0][1]])!r:.40}", tool)
    held = [(each, token_map.special_ids.intersection(_whole(each.payload["ids"]))) for each, token_map in spelling]
    faults = [f"{each.where}: {len(special)} control tokens among the ids" for each, special in held if special]
    return verdict_of(rule, faults, f"{len(spelling)} of {len(judged)} texts spell one, in ordinary ids", tool)


def _wrapping(tool: str, result: Mapping[str, Any], maps: Sequence[TokenMap]) -> Verdict:
    """Wrap the result under each map: no text may change, and wrapping it again may change nothing at all."""
    faults: list[str] = []
    for token_map in maps:
        meta = MetaTokenizer(token_map.map_id, token_map, token_map.encode)
        try:
            once = wrap_tool_call(result, meta)
        except CodecError as error:
            return Verdict("wrapping is idempotent", "fail", error.message, tool)
        if wrap_tool_call(once, meta) != once:
            faults.append("wrapping the wrapped result changes it")
        if _without_meta(strip_codec_meta(once)) != _without_meta(strip_codec_meta(result)):
            faults.append("wrapping changed more than the ids")
    return verdict_of("wrapping is idempotent", faults, "the text stays, and wrapping again changes nothing", tool)


def _without_meta(result: Mapping[str, Any]) -> list[object]:
    blocks = (cast("Mapping[str, object]", block) for block in blocks_of(result) if isinstance(block, Mapping))
    return [{key: value for key, value in block.items() if key != "_meta"} for block in blocks]


def _whole(ids: Sequence[object]) -> list[int]:
    return [each for each in ids if type(each) is int]


def _encoded(token_map: TokenMap, text: str) -> list[int] | None:
    try:
        return token_map.encode(text)
    except CodecError:
        return None


def _is_hash(spelled: str) -> bool:
    try:
        return normalise_hash(spelled) == spelled
    except MapHashMalformed:
        return False
