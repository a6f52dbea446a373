"""Shorter forms of a tool's result: its JSON compacted, its text and its ids cut to what there is room for.

A model reads every quote, key and indent of a result as tokens. Turns a JSON text into a shorter one with the same
values: numbers are copied as they are written, and a table is JSON too, `{"columns": [...], "rows": [[...], ...]}`. A
text that is no JSON, or would not get shorter, stays as it is. What is too long is cut before it is tokenized, and its
ids never in the middle of a character; a note tells the model so. It does not decide how much room there is. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, Final, NoReturn, cast

from gateway.agent.results.id_slices import whole_characters
from gateway.config.gateway_config import ResultForm
from gateway.proxy.result_tokens import IdPiece, content_of, is_legacy, is_text, resource_text
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import TokenMap

_MOST: Final = 4 * 1024 * 1024
"""Characters of a text that is read; a longer one stays as it is."""
_LEAST_ROWS: Final = 3


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def compacted(result: Mapping[str, Any], form: ResultForm, token_map: TokenMap) -> tuple[Mapping[str, Any], int]:
    """Return a result with its texts in this form, and the tokens that this saves. A text with ids stays as it is."""
    saved, blocks, content = 0, list[Any](), content_of(result)
    if any(map(is_legacy, content)):
        return result, 0
    for block in content:
        if is_text(block) and CODEC_META_KEY not in (block.get("_meta") or ()):
            text = compact(block["text"], form)
            saved += len(token_map.encode(block["text"])) - len(token_map.encode(text)) if text != block["text"] else 0
            blocks.append({**block, "text": text})
        else:
            blocks.append(block)
    return ({**result, "content": blocks}, saved) if saved > 0 else (result, 0)


def compact(text: str, form: ResultForm) -> str:
    """Return the text in this form, if it is a JSON object or list and gets shorter."""
    if form == "as_sent" or len(text) > _MOST or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        value: object = json.loads(
            text,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
        shorter = min((_written(value, tables=each) for each in {False, form == "table"}), key=len)
        # A text may spell half of a surrogate pair, which can't be written out.
        shorter.encode()
    except (ValueError, RecursionError):
        return text
    return shorter if len(shorter) < len(text) else text


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands in it twice")
    return members


def _written(value: object, *, tables: bool) -> str:
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return "{" + ",".join(f"{_text(key)}:{_written(each, tables=tables)}" for key, each in members) + "}"
    if isinstance(value, list):
        items = cast("list[object]", value)
        columns = _columns(items) if tables else ()
        return _table(columns, cast("list[Mapping[str, object]]", items)) if columns else _list(items, tables=tables)
    return _text(value)


def _columns(items: list[object]) -> Sequence[str]:
    """The keys of a list's objects; () if they are not all equal, or too few."""
    first = items[0] if len(items) >= _LEAST_ROWS else None
    keys = cast("dict[str, object]", first).keys() if isinstance(first, dict) else ()
    equal = keys and all(isinstance(each, dict) and cast("dict[str, Any]", each).keys() == keys for each in items)
    return [*keys] if equal else ()


def _table(columns: Sequence[str], items: Sequence[Mapping[str, object]]) -> str:
    rows = (_list([each[key] for key in columns], tables=True) for each in items)
    return f'{{"columns":[{",".join(map(_text, columns))}],"rows":[{",".join(rows)}]}}'


def _list(items: Sequence[object], *, tables: bool) -> str:
    return "[" + ",".join(_written(each, tables=tables) for each in items) + "]"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# What is too long, cut.

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
