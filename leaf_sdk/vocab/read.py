"""The bytes of a Codec map to a `TokenMap`, checked before anything is used.

Reads maps of versions 1 and 2. Unknown keys are ignored, as every Codec reader must; those that begin with `x_` and are
listed in docs/maps.md are ours, and say what the format has no field for. What can't be reproduced exactly is refused
by name. Maps that can only decode (version 1, plain text, metaspace without `x_metaspace`) are read only for a caller
that asks for no more.

Source: Codec specification 0.5, "Tokenizer map"; the checks are the reference validator's, but stricter where it passes
a map that could only fail later.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from types import MappingProxyType
from typing import Any, cast

from leaf_sdk.errors import MapHashMismatch, NotAMap

from .added import is_ordinary
from .blocks import read_dictionaries, read_metaspace, read_tool_calling
from .byte_level import ALPHABET
from .collector import collector_held
from .digest import check_bytes, map_digest, normalise_hash
from .fields import MAX_ID, as_object, ids_of, json_object, refused, text_of
from .merges import Merges
from .metaspace_json import missing_byte
from .pre_tokenizers import from_map
from .token_map import CANNOT_ENCODE, TokenMap
from .tokenizer import Algorithm, Normalizer

_NORMALIZERS: tuple[Normalizer, ...] = ("NFC", "NFD", "NFKC", "NFKD")
_ALGORITHMS: tuple[Algorithm, ...] = ("bpe", "unigram", "unigram32")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_PLACEHOLDER_KEYS = ("_synthetic", "synthetic", "_placeholder", "placeholder")


def load_map(data: bytes, expected_hash: str | None = None, *, decode_only: bool = False) -> TokenMap:
    """Read a map from its exact bytes.

    Args:
        data: the file's bytes, unchanged: their sha256 is the map's name.
        expected_hash: `sha256:<hex>` or bare hex; without it any bytes are accepted.
        decode_only: also accept maps that say too little to encode exactly; `TokenMap.can_encode` tells.

    Raises:
        TypeError: `data` is a path, for example: `open_map` reads files.
        MapHashMalformed: `expected_hash` is not a sha256.
        MapHashMismatch: the bytes are not those that it names.
        NotAMap: not JSON, or a field is missing or of the wrong kind.
        MapUnsupported: a placeholder, or a map that can't be reproduced exactly.
    """
    check_bytes(data, "load_map")
    map_id = map_digest(data)
    if expected_hash is not None and (expected := normalise_hash(expected_hash)) != map_id:
        raise MapHashMismatch(expected, map_id)
    with collector_held():
        fields = json_object(data, "a Codec map")
        _check_unicode(data, fields)
        token_map = _read(fields, map_id)
    if not token_map.can_encode and not decode_only:
        raise refused(_kind(fields), CANNOT_ENCODE)
    return token_map


def _read(fields: Mapping[str, Any], map_id: str) -> TokenMap:
    if fields.keys().isdisjoint({"id", "version", "vocab", "tokens"}):
        raise NotAMap("the JSON has none of a map's fields, expected a Codec map; is this the right file?")
    name, version = text_of(fields, "id"), text_of(fields, "version")
    size = fields.get("vocab_size")
    if type(size) is not int or size < 1:
        raise NotAMap(f"vocab_size is {size!r}, expected a positive whole number")
    if marks := [key for key in _PLACEHOLDER_KEYS if fields.get(key)]:
        raise refused(f"map {name!r}, marked {marks[0]}", "it is a placeholder, whose ids mean nothing")
    _check_shape(fields)
    vocab = ids_of(fields, "vocab") if "vocab" in fields else _version_1(fields)
    special_tokens = ids_of(fields, "special_tokens") if fields.get("special_tokens") is not None else {}
    _check_vocab(fields, vocab, special_tokens)
    plain = TokenMap(
        id=name,
        version=version,
        map_id=map_id,
        vocab=MappingProxyType(vocab),
        special_tokens=MappingProxyType(special_tokens),
        merges=(),
        pre_tokenizer=None,
        encoder=fields.get("encoder"),
        tool_calling=read_tool_calling(fields, special_tokens),
        algorithm=None,
        byte_fallback=_byte_fallback(fields, vocab),
        zstd_dictionaries=read_dictionaries(fields),
        published_at=text_of(fields, "published_at") if fields.get("published_at") is not None else None,
    )
    return _encoding(plain, fields) if plain.encoder else plain


def _encoding(plain: TokenMap, fields: Mapping[str, Any]) -> TokenMap:
    """Add what encoding needs, if the map says it."""
    metaspace = read_metaspace(fields)
    if plain.encoder == "metaspace" and (metaspace is None or plain.byte_fallback is None):
        return plain
    algorithm = fields.get("x_algorithm", "bpe")
    if algorithm not in _ALGORITHMS or (algorithm != "bpe" and plain.encoder != "metaspace"):
        raise refused(f"x_algorithm {algorithm!r:.80}", "this version does not know it; upgrade codec-leaf")
    return replace(
        plain,
        algorithm=algorithm,
        merges=_merges(fields, plain.vocab) if algorithm == "bpe" else (),
        scores=_scores(fields, len(plain.vocab)) if algorithm != "bpe" else (),
        pre_tokenizer=from_map(fields) if plain.encoder == "byte_level" else None,
        metaspace=metaspace if plain.encoder == "metaspace" else None,
        normalizer=_normalizer(fields),
        ignore_merges=fields.get("x_ignore_merges") is True,
        added_tokens=_added_tokens(fields, plain),
    )


def _check_shape(fields: Mapping[str, Any]) -> None:
    encoder = fields.get("encoder")
    if "vocab" not in fields and "tokens" not in fields:
        raise NotAMap("vocab is missing, expected {token: id}")
    if encoder not in (None, "byte_level", "metaspace"):
        raise NotAMap(f"encoder is {encoder!r}, expected 'byte_level' or 'metaspace'")
    if (fields.get("byte_fallback_start") is None) != (fields.get("byte_fallback_end") is None):
        raise NotAMap("byte_fallback_start and byte_fallback_end must both be set or both left out")


def _kind(fields: Mapping[str, Any]) -> str:
    if "vocab" not in fields:
        return "a version 1 map (`tokens`)"
    encoder = fields.get("encoder")
    return f"a map with encoder {encoder!r} and no x_metaspace" if encoder else "a map without an encoder"


def _version_1(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return the vocabulary of a version 1 map, `{"7": "text"}`; a text with several ids is refused."""
    table = fields["tokens"]
    if not isinstance(table, dict):
        raise NotAMap(f"tokens is a {type(table).__name__}, expected {{id: text}}")
    vocab: dict[str, int] = {}
    for number, text in cast("dict[str, object]", table).items():
        if not (number.isascii() and number.isdigit() and int(number) <= MAX_ID):
            raise NotAMap(f"tokens has the key {number!r:.40}, expected an id from 0 to {MAX_ID}")
        if not isinstance(text, str) or any("\ud800" <= character <= "\udfff" for character in text):
            raise NotAMap(f"tokens[{number!r}] is {text!r:.40}, expected Unicode text")
        if text in vocab:
            raise refused(f"one text for tokens {vocab[text]} and {number}", "a version 2 map has one id per token")
        vocab[text] = int(number)
    return vocab


def _check_unicode(data: bytes, fields: Mapping[str, Any]) -> None:
    """Refuse a lone surrogate in any token; the tokens are searched only if the bytes may hold an escape of one."""
    if _SURROGATE.search(data) is None:
        return
    for key in ("vocab", "special_tokens"):
        try:
            "".join(as_object(fields.get(key))).encode()
        except UnicodeEncodeError as error:
            at = error.object[max(0, error.start - 10) : error.end]
            raise NotAMap(f"{key} around {at!r} holds a lone surrogate, expected Unicode text") from error


def _check_vocab(fields: Mapping[str, Any], vocab: Mapping[str, int], special_tokens: Mapping[str, int]) -> None:
    if len(set(vocab.values())) != len(vocab):
        raise NotAMap("two tokens of vocab share one id, expected one token per id")
    if len(vocab) < 2:
        raise refused(f"map {fields['id']!r} of {len(vocab)} tokens", "it is a placeholder, whose ids mean nothing")
    special = {*special_tokens.values()}
    one_byte = [token for token in ALPHABET if vocab.get(token) in special] if fields.get("encoder") else []
    if one_byte:
        raise refused(f"special token {one_byte[0]!r}", "ordinary text could not be spelled without it")


def _byte_fallback(fields: Mapping[str, Any], vocab: Mapping[str, int]) -> tuple[int, int] | None:
    first, last = fields.get("byte_fallback_start"), fields.get("byte_fallback_end")
    if first is None:
        return None
    if type(first) is not int or type(last) is not int or last - first != 255:
        raise NotAMap(
            f"byte_fallback_start {first!r} and byte_fallback_end {last!r} must span 256 ids, one for each byte"
        )
    missing = missing_byte(vocab, first)
    if missing is not None:
        raise NotAMap(
            f"vocab has {vocab.get(f'<0x{missing:02X}>')!r} for <0x{missing:02X}>, expected {first + missing}"
        )
    return first, last


def _merges(fields: Mapping[str, Any], vocab: Mapping[str, int]) -> Merges:
    value = fields.get("merges")
    if not isinstance(value, list):
        raise NotAMap(f"merges is a {type(value).__name__}, expected a list of 'left right'")
    items = cast("list[object]", value)
    if set(map(type, items)) - {str}:
        index, line = next((at, each) for at, each in enumerate(items) if not isinstance(each, str))
        raise NotAMap(f"merges[{index}] is {line!r:.80}, expected 'left right'")
    lines = cast("list[str]", items)
    # Checked all at once, and only what the sides join to: sides that are not tokens are refused when merges are built.
    joined = [*map(str.replace, lines, repeat(" "), repeat(""))]
    one_space = set(map(str.count, lines, repeat(" "))) <= {1}
    if not one_space or not (_stand_in_a_row(joined, vocab) or all(map(vocab.__contains__, joined))):
        _name_the_wrong_merge(lines, vocab)
    return Merges(lines)


def _stand_in_a_row(joined: Sequence[str], vocab: Mapping[str, int]) -> bool:
    """Return whether these tokens are consecutive in the vocabulary, as trained ones are: faster than finding each."""
    if not joined or joined[0] not in vocab:
        return not joined
    tokens = [*vocab]
    start = tokens.index(joined[0])
    return tokens[start : start + len(joined)] == joined


def _name_the_wrong_merge(lines: Sequence[str], vocab: Mapping[str, int]) -> None:
    for index, line in enumerate(lines):
        left, space, right = line.partition(" ")
        if not space or " " in right:
            raise NotAMap(f"merges[{index}] is {line!r:.80}, expected 'left right'")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise NotAMap(f"merges[{index}] is {line!r:.80}, expected both sides and their concatenation in vocab")


def _scores(fields: Mapping[str, Any], count: int) -> Sequence[float]:
    value: object = fields.get("x_scores")
    numbers = cast("list[object]", value) if isinstance(value, list) else []
    if len(numbers) != count or set(map(type, numbers)) - {int, float}:
        raise NotAMap(f"x_scores holds {len(numbers)} entries, expected a number for each of {count} tokens")
    return tuple(map(float, cast("list[float]", numbers)))


def _normalizer(fields: Mapping[str, Any]) -> Normalizer | None:
    value = fields.get("x_normalizer")
    if value is None or value in _NORMALIZERS:
        return value
    raise refused(
        f"x_normalizer {value!r:.80}", f"this version knows only {', '.join(_NORMALIZERS)}; upgrade codec-leaf"
    )


def _added_tokens(fields: Mapping[str, Any], plain: TokenMap) -> Sequence[str]:
    value: object = fields.get("x_added_tokens", [])
    tokens = cast("list[object]", value) if isinstance(value, list) else [value]
    for token in tokens:
        if not isinstance(token, str) or token not in plain.vocab or plain.vocab[token] in plain.special_ids:
            raise NotAMap(f"x_added_tokens holds {token!r:.80}, expected tokens of vocab that are not special")
        if not is_ordinary(token, special=False):
            raise refused(f"x_added_tokens entry {token!r:.80}", "ordinary text may spell only blanks and HTML tags")
    return tuple(cast("list[str]", tokens))
