"""Cuts a tool's result to the ids that there is room for, and tells the model that it did.

Turns a raw result into a shorter one before it is tokenized, and pieces of ids into fewer, never in the middle of a
character. It does not decide how much room there is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.engine.llama_cpp.repair import cuts_a_character
from gateway.proxy import IdPiece
from gateway.proxy.result_parts import content_of, is_legacy, is_text
from leaf_sdk.vocab import TokenMap

_LONGEST_TOKEN = 32
"""Characters of a result that are tokenized for each id that may be shown; the rest is dropped before."""


def shorten(result: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """The result with its text blocks cut to what `most` ids can spell: text that nobody sees need not be tokenized.

    A block that is cut loses its leaf ids, which spell the whole block.
    """
    longest = most * _LONGEST_TOKEN
    content = content_of(result)
    if not any(is_text(block) and len(block["text"]) > longest for block in content):
        return result
    cut: list[object] = [
        {**block, "text": block["text"][:longest], "_meta": {}}
        if is_text(block) and len(block["text"]) > longest
        else block
        for block in content
        if not is_legacy(block)
    ]
    return {**result, "content": cut}


def cut(pieces: Sequence[IdPiece], most: int, token_map: TokenMap, *, shortened: bool) -> tuple[IdPiece, ...]:
    """At most `most` ids of the pieces, with a note for the model where they are cut; never cut inside a character.

    `shortened`: whether the pieces are already only a part of the result.
    """
    if not shortened and sum(len(piece.ids) for piece in pieces) <= most:
        return tuple(pieces)
    note = tuple(token_map.encode(f"\n[cut: only the first {most} tokens are shown]"))
    room = max(most - len(note), 0)
    kept: list[IdPiece] = []
    for piece in pieces:
        kept.append(IdPiece(_whole_characters(piece.ids[:room], token_map), piece.source))
        room -= len(piece.ids)
        if room <= 0:
            break
    return (*kept, IdPiece(note[:most], "shim"))


def _whole_characters(ids: tuple[int, ...], token_map: TokenMap) -> tuple[int, ...]:
    while ids and cuts_a_character(b"".join(map(token_map.token_bytes, ids[-4:]))):
        ids = ids[:-1]
    return ids
