"""The ids of calls: those in which the model wrote the arguments, and a result's, cut to the ids there is room for.

Arguments go as ids to a tool that reads ids: the run of a region's ids that begins and ends on token boundaries, and
means what the parser read. Where there is none (arguments in tags, a repaired brace, a marker that shares a token with
the object), they go out as text. Nothing is encoded or decoded for this: the bytes of each token are looked up.

A result is shortened before it is tokenized, and its pieces are cut, never in the middle of a character; a note tells
the model so. It knows no server, and does not decide how much room there is.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import is_
from typing import Any, Final, NamedTuple, cast

from gateway.agent.results.spelled_ids import whole_characters
from gateway.proxy.result_tokens import IdPiece, content_of, is_legacy, is_text, resource_text
from leaf_sdk.vocab import TokenMap

_NO_TEXT: Final = b"\xff"
"""Stands for an id that the map does not have: no JSON contains this byte."""
_LONGEST_TOKEN = 32
"""Characters of a result that are tokenized for each id that may be shown; the rest is dropped before."""


class ArgumentIds(NamedTuple):
    """Ids that spell an object."""

    ids: tuple[int, ...]
    name: str | None
    """The tool's name, where the ids spell a whole call; None: they spell only the arguments."""


def spelled_arguments(
    region: Sequence[int], token_map: TokenMap, name: str, arguments: Mapping[str, Any]
) -> ArgumentIds | None:
    """The ids between the markers of `region`, if they spell this call.

    Args:
        region: a closed call's ids, both markers included.
        name: the tool's name as the model knows it.
        arguments: what the parser read.
    """
    pieces = [token_map.token_bytes(each) if token_map.has_id(each) else _NO_TEXT for each in region]
    text = b"".join(pieces)
    start, end = text.find(b"{"), text.rfind(b"}") + 1
    if start < 0 or end <= start:
        return None
    ends = list(accumulate(map(len, pieces)))
    first = next(n for n, at in enumerate(ends) if at > start)
    last = next(n for n, at in enumerate(ends) if at >= end)
    ids = tuple(region[first : last + 1])
    before, after = text[ends[first] - len(pieces[first]) : start], text[end : ends[last]]
    # Whitespace may share a token with the object: JSON ignores it.
    if before.strip() or after.strip() or not token_map.special_ids.isdisjoint(ids):
        return None
    return _judged(ids, text[start:end], name, arguments)


def _judged(ids: tuple[int, ...], written: bytes, name: str, arguments: Mapping[str, Any]) -> ArgumentIds | None:
    try:
        said: object = json.loads(written)
    except (ValueError, RecursionError):
        return None
    if said == arguments:
        return ArgumentIds(ids, None)
    whole = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    is_call = whole.get("name") == name and whole.get("arguments", whole.get("parameters")) == arguments
    return ArgumentIds(ids, name) if is_call else None


def shorten(result: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """The result with its text blocks cut to what `most` ids can spell: text that nobody sees need not be tokenized.

    A block that is cut loses its leaf ids, which spell the whole block.
    """
    longest = most * _LONGEST_TOKEN
    content = content_of(result)
    cut = [_shorter(block, longest) for block in content]
    if all(map(is_, cut, content)):
        return result
    return {**result, "content": [block for block in cut if not is_legacy(block)]}


def least_tokens(result: Mapping[str, Any]) -> int:
    """About how many tokens the text of a large result has at least."""
    return max(sum(map(len, map(_text_of, content_of(result)))) // _LONGEST_TOKEN, 1)


def _text_of(block: object) -> str:
    return cast("dict[str, Any]", block)["text"] if is_text(block) else resource_text(block) or ""


def _shorter(block: object, longest: int) -> object:
    text = _text_of(block)
    if len(text) <= longest:
        return block
    kept = cast("dict[str, Any]", block) if is_text(block) else {"type": "text"}
    return {**kept, "text": text[:longest], "_meta": {}}


def cut(
    pieces: Sequence[IdPiece], most: int, token_map: TokenMap, *, shortened: bool
) -> tuple[tuple[IdPiece, ...], bool]:
    """At most `most` ids of the pieces, and whether they are all; where they are cut, a note for the model ends them.

    They are never cut inside a character. `shortened`: whether the pieces are already only a part of the result.
    """
    if not shortened and sum(len(piece.ids) for piece in pieces) <= most:
        return tuple(pieces), True
    note = tuple(token_map.encode(f"\n[cut: only the first {most} tokens are shown]"))
    room = max(most - len(note), 0)
    kept: list[IdPiece] = []
    for piece in pieces:
        kept.append(IdPiece(tuple(whole_characters(piece.ids[:room], token_map)), piece.source))
        room -= len(piece.ids)
        if room <= 0:
            break
    return (*kept, IdPiece(note[:most], "shim")), False
