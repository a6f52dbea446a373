"""Cuts a tool's result to the ids that there is room for, and tells the model that it did.

Turns a raw result into a shorter one before it is tokenized, and pieces of ids into fewer, never in the middle of a
character. It does not decide how much room there is.
"""

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, cast

from gateway.agent.results.spelled_ids import whole_characters
from gateway.proxy.result_tokens import IdPiece, content_of, is_legacy, is_text, resource_text
from leaf_sdk.vocab import TokenMap

_LONGEST_TOKEN = 32
"""Characters of a result that are tokenized for each id that may be shown; the rest is dropped before."""


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
