"""The only place where the leaf ids of results are accepted, or their text is tokenized.

Turns a raw tool result into ids for an engine, or into the result for a client that named a map. A text block's own ids
are used unchanged if they pass every check; otherwise its text is encoded as ordinary text, in which the spelling of a
control token never becomes one. It knows no connection and no template.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, Final, Literal, cast

from gateway.config.gateway_config import VerifyLevel
from gateway.observe.logs import TokenNotices
from gateway.observe.metrics import Metrics
from gateway.proxy.results import stand_in, text_of
from leaf_sdk.errors import TextNotUnicode
from leaf_sdk.leaf.contract import CODEC_META_KEY, LEGACY_BLOCK_TYPE, LeafPayload
from leaf_sdk.leaf.payload import chosen, payloads_of
from leaf_sdk.leaf.verify import check_ids
from leaf_sdk.vocab import TokenMap

# Both shapes of the leaf contract are read: per-block `_meta`, and the older sibling block. A text that came as ids
# alone is decoded only when somebody needs its words.


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text block at `index` of the content (-1: it has no block), and the ids that its tool shipped, unchecked."""

    index: int
    text: str
    payload: LeafPayload | None
    malformed: bool = False
    """Whether there was something in the payload's place that is not a payload."""


class UnreadText:
    """A text that came as ids alone, in the place of a block. Only callers that read ids are given one."""

    def __init__(self, token_map: TokenMap, ids: tuple[int, ...], on_read: Callable[[str], None]) -> None:
        """The ids are checked already: all are in the map, none is special. `on_read` gets the map's id on decoding."""
        self.token_map = token_map
        self.ids = ids
        self._on_read = on_read

    @cached_property
    def text(self) -> str:
        """The decoded text, for people; made on first use."""
        self._on_read(self.token_map.map_id)
        return self.token_map.decode(self.ids)


@dataclass(frozen=True, slots=True)
class OtherPart:
    """A block that is not of type text; a model sees `line` in its place: the text of a resource, or a stand-in."""

    index: int
    line: str


ResultPart = TextPart | UnreadText | OtherPart


def read_parts(result: Mapping[str, Any], wanted: Collection[str] = ()) -> list[ResultPart]:
    """Return the result's parts in order, without legacy siblings.

    A result that has only structuredContent gives its compact JSON as one text. If a text has payloads under several
    maps, the first one of a `wanted` map is used, else the first.
    """
    content = content_of(result)
    parts: list[ResultPart] = []
    for index, block in enumerate(content):
        if isinstance(block, UnreadText):
            parts.append(block)
        elif is_text(block):
            following = content[index + 1] if index + 1 < len(content) else None
            parts.append(_text_part(index, block, following, wanted))
        elif not is_legacy(block):
            parts.append(OtherPart(index, _line(block)))
    if not parts and result.get("structuredContent") is not None:
        text = json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":"))
        parts.append(TextPart(-1, text, None))
    return parts


def content_of(result: Mapping[str, Any]) -> list[Any]:
    """The content blocks; empty if the result has no list of them."""
    content: object = result.get("content")
    return cast("list[Any]", content) if isinstance(content, list) else []


def is_text(block: object) -> bool:
    """Whether the block is of type `text` and its text is a string."""
    if not isinstance(block, dict):
        return False
    fields = cast("dict[str, object]", block)
    return fields.get("type") == "text" and isinstance(fields.get("text"), str)


def is_legacy(block: object) -> bool:
    """Whether the block is the older sibling form of a payload (codecai up to 0.3.1), which no model should read."""
    return isinstance(block, dict) and cast("dict[str, object]", block).get("type") == LEGACY_BLOCK_TYPE


def _text_part(index: int, block: dict[str, Any], following: object, wanted: Collection[str]) -> TextPart:
    """The block as a part. A valid payload in `_meta` wins over one in the sibling right after the block."""
    meta: object = block.get("_meta")
    shipped: list[object] = [cast("dict[str, object]", meta).get(CODEC_META_KEY)] if isinstance(meta, dict) else []
    if is_legacy(following) and cast("dict[str, object]", following).get("sibling_index") in (None, index):
        shipped.append(following)
    shipped = [value for value in shipped if value is not None]
    payload = next((chosen(found, wanted) for value in shipped if (found := payloads_of(value))), None)
    return TextPart(index, block["text"], payload, malformed=bool(shipped) and payload is None)


def resource_text(block: object) -> str | None:
    """The text of an embedded resource; None for any other block."""
    if not isinstance(block, dict) or cast("dict[str, object]", block).get("type") != "resource":
        return None
    return text_of(cast("dict[str, Any]", block))


def _line(block: object) -> str:
    if not isinstance(block, dict):
        return stand_in({})
    fields = cast("dict[str, Any]", block)
    inner: object = fields.get("resource")
    details = cast("dict[str, Any]", inner) if isinstance(inner, dict) else fields
    text = resource_text(fields)
    return stand_in(fields, details.get("uri")) if text is None else text


_JOINT: Final = "\n"
_PLAIN: Final = ("map_id", "ids")
"""The only fields of a plain payload."""


@dataclass(frozen=True, slots=True)
class IdPiece:
    """Consecutive ids, and who made them."""

    ids: tuple[int, ...]
    source: Literal["leaf", "shim"]


@dataclass(frozen=True, slots=True)
class ResultIds:
    """The ids of one result. Pieces alternate: a block's ids, the line break before the next one, its ids, ..."""

    pieces: tuple[IdPiece, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids in order."""
        return tuple(token_id for piece in self.pieces for token_id in piece.ids)

    @property
    def source(self) -> Literal["leaf", "shim"]:
        """`leaf` if every block came with accepted leaf ids, else `shim`; line breaks between blocks do not count."""
        blocks = self.pieces[::2]
        return "leaf" if blocks and all(piece.source == "leaf" for piece in blocks) else "shim"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why shipped ids are not used; `reason` is the metric's label."""

    reason: str
    detail: str


class ResultTokens:
    """Turns results into ids under the accepted maps."""

    def __init__(
        self,
        accepted: Mapping[str, TokenMap],
        *,
        level: VerifyLevel,
        metrics: Metrics,
        notices: TokenNotices,
        proven: Callable[[], bool] = lambda: False,
    ) -> None:
        """Maps are compared only when a tool ships ids under a map other than the requested one.

        Args:
            accepted: map id to map; all of them should be the same tokenizer.
            level: how far shipped ids are trusted.
            proven: whether an engine has proven by now that all maps are its tokenizer. If not, two maps count as one
                tokenizer only if their contents are the same.
        """
        self._accepted = accepted
        self._proven = proven
        self._equal: dict[frozenset[str], bool] = {}
        self._level: VerifyLevel = level
        self._metrics = metrics
        self._notices = notices

    def map_of(self, map_id: str) -> TokenMap | None:
        """The accepted map with that id; None: there is none."""
        return self._accepted.get(map_id)

    def for_engine(self, tool: str, result: Mapping[str, Any], token_map: TokenMap) -> ResultIds:
        """Return the ids of the result for an engine's prompt. `token_map` is the engine's, which has proven every map.

        Blocks are joined by the ids of a line break. A block that is not text becomes a short line that describes it.
        """
        pieces: list[IdPiece] = []
        for part in read_parts(result, (token_map.map_id, *self._accepted)):
            if pieces:
                pieces.append(_shim(_encode(token_map, _JOINT)))
            if isinstance(part, OtherPart):
                pieces.append(_shim(_encode(token_map, part.line)))
            elif isinstance(part, UnreadText):
                pieces.append(self._unread(tool, part, token_map))
            else:
                pieces.append(self._piece(tool, part, token_map, proven=True))
        return ResultIds(tuple(pieces))

    def for_client(
        self, tool: str, result: dict[str, Any], token_map: TokenMap, *, min_text_length: int = 0
    ) -> dict[str, Any]:
        """Return the result for a client that named `token_map`: text blocks get its ids, all else stays unchanged.

        Good ids are kept, under the id of the client's map; ids that fail a check are replaced. A block without ids
        that is shorter than `min_text_length` characters gets none. Payloads of the older sibling form become
        per-block ones, because a strict client refuses their block type. The input is not modified.
        """
        blocks = content_of(result)
        if len(blocks) == 1:
            # The common cases, at a fraction of the cost.
            if (count := self._good_as_it_is(blocks[0], token_map)) is not None:
                self._bypass(tool, token_map, count)
                return result
            if is_text(alone := blocks[0]) and "_meta" not in alone:
                if len(alone["text"]) < min_text_length:
                    return result
                self._notices.shim(tool, token_map.map_id)
                payload = {"map_id": token_map.map_id, "ids": self._made(alone["text"], token_map)}
                return {**result, "content": [{**alone, "_meta": {CODEC_META_KEY: payload}}]}
        content = list(blocks)
        for part in read_parts(result, (token_map.map_id, *self._accepted)):
            if isinstance(part, TextPart) and part.index >= 0:
                if part.payload is None and len(part.text) < min_text_length:
                    continue
                content[part.index] = self._with_ids(tool, content[part.index], part, token_map)
        content = [block for block in content if not is_legacy(block)]
        return {**result, "content": content} if "content" in result else result

    def _unread(self, tool: str, part: UnreadText, token_map: TokenMap) -> IdPiece:
        """The ids as they came if they pass the engine map's check too (they passed their own map's on arrival)."""
        own = part.token_map
        if own is not token_map and (rejection := check_ids(token_map, "", part.ids, "trust")) is not None:
            self._metrics.leaf_rejected(rejection.reason)
            self._notices.rejected(tool, token_map.map_id, rejection.reason, rejection.detail)
            return _shim(self._made(part.text, token_map))
        self._bypass(tool, token_map, len(part.ids))
        return IdPiece(part.ids, "leaf")

    def _good_as_it_is(self, block: object, token_map: TokenMap) -> int | None:
        """How many ids a text block carries, if its only payload is of this map and passes every check; else None."""
        try:
            meta: Any = cast("dict[str, Any]", block)["_meta"]
            text, payload = cast("dict[str, Any]", block)["text"], meta[CODEC_META_KEY]
            map_id, ids = payload["map_id"], payload["ids"]
            plain = cast("dict[str, Any]", block)["type"] == "text" and len(payload) == len(_PLAIN)
        except (KeyError, TypeError):
            return None
        if not plain or map_id != token_map.map_id or not isinstance(text, str) or not isinstance(ids, list):
            return None
        whole = cast("list[object]", ids)
        return len(whole) if check_ids(token_map, text, whole, self._level) is None else None

    def _bypass(self, tool: str, token_map: TokenMap, count: int) -> None:
        self._metrics.leaf_bypassed(token_map.map_id, ids=count)
        self._notices.leaf(tool, token_map.map_id)

    def _with_ids(self, tool: str, block: dict[str, Any], part: TextPart, token_map: TokenMap) -> dict[str, Any]:
        ids = list(self._piece(tool, part, token_map, proven=self._proven()).ids)
        meta: object = block.get("_meta")
        kept = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
        return {**block, "_meta": {**kept, CODEC_META_KEY: {"map_id": token_map.map_id, "ids": ids}}}

    def _piece(self, tool: str, part: TextPart, token_map: TokenMap, *, proven: bool) -> IdPiece:
        """The block's own ids if they pass every check, else ids made from its text."""
        refusal = self._why_refused(part, token_map, proven=proven)
        if part.payload is not None and refusal is None:
            ids = tuple(part.payload["ids"])
            self._bypass(tool, token_map, len(ids))
            return IdPiece(ids, "leaf")
        if refusal is None:
            self._notices.shim(tool, token_map.map_id)
        else:
            self._metrics.leaf_rejected(refusal.reason)
            self._notices.rejected(tool, token_map.map_id, refusal.reason, refusal.detail)
        return _shim(self._made(part.text, token_map))

    def _made(self, text: str, token_map: TokenMap) -> list[int]:
        began = perf_counter()
        ids = _encode(token_map, text)
        self._metrics.shim_tokenized(token_map.map_id, ids=len(ids), seconds=perf_counter() - began)
        return ids

    def _why_refused(self, part: TextPart, token_map: TokenMap, *, proven: bool) -> _Refusal | None:
        """Why the shipped ids can't be used under `token_map`; None if they can, or if none were shipped.

        Another map's ids are used only if both maps are accepted and known to be the same tokenizer. They must then
        pass the checks of both maps, because one may list a special token that the other does not.
        """
        if part.malformed:
            return _Refusal("shape", "its payload lacks map_id or the list of ids")
        if part.payload is None:
            return None
        map_id, ids = part.payload["map_id"], part.payload["ids"]
        judges = [token_map]
        if map_id != token_map.map_id:
            own = self._accepted.get(map_id)
            if own is None or token_map.map_id not in self._accepted or not (proven or self._are_equal(own, token_map)):
                self._metrics.map_mismatched()
                return _Refusal("map", f"the ids belong to map {map_id[:80]!r}; expected {token_map.map_id!r}")
            judges.append(own)
        for judge in judges:
            rejection = check_ids(judge, part.text, ids, self._level)
            if rejection is not None:
                return _Refusal(rejection.reason, rejection.detail)
        return None

    def _are_equal(self, one: TokenMap, other: TokenMap) -> bool:
        """Whether the maps are the same tokenizer. Compared once: a map's id is its hash, so the answer stays true."""
        pair = frozenset((one.map_id, other.map_id))
        if pair not in self._equal:
            self._equal[pair] = one.is_same_tokenizer(other)
        return self._equal[pair]


def _shim(ids: list[int]) -> IdPiece:
    return IdPiece(tuple(ids), "shim")


def _encode(token_map: TokenMap, text: str) -> list[int]:
    """Encode ordinary text. A lone surrogate, which no transport lets through, becomes U+003F (a question mark)."""
    try:
        return token_map.encode(text)
    except TextNotUnicode:
        return token_map.encode(text.encode("utf-8", "replace").decode("utf-8"))
