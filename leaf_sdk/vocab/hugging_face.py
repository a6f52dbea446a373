"""A Hugging Face tokenizer.json to the parts of a tokenizer, or a refusal that names what can't be reproduced.

Byte-level BPE is supported, and BPE and unigram with `▁` for spaces and a token for every byte, in the structures that
`pre_tokenizers` and `metaspace_json` know. Post-processors (BOS, EOS, templates) are left out on purpose: ids of a
tool's text contain none of that. Added tokens count as special, even those marked `special: false`, except for blanks
and HTML tags (see `added`). Ids are those of `tokenizers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from leaf_sdk.errors import NotAMap

from .added import is_ordinary
from .byte_level import missing_bytes
from .fields import as_list, as_object, inexact
from .metaspace_json import byte_range, read_metaspace_structure
from .pre_tokenizers import from_hugging_face, shape_of, stages_of
from .tokenizer import Normalizer, Tokenizer, by_id

# Model options that change the ids, with the values that leave them alone.
_INERT: Mapping[str, tuple[object, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}
_NORMALIZERS: Mapping[str, Normalizer] = {"NFC": "NFC", "NFD": "NFD", "NFKC": "NFKC", "NFKD": "NFKD"}


@dataclass(frozen=True, slots=True)
class _Added:
    special: dict[str, int]
    ordinary: dict[str, int]


def read_tokenizer_json(document: Mapping[str, Any]) -> Tokenizer:
    """Read the parts of a parsed tokenizer.json.

    Raises:
        MapUnsupported: a model, an option, a normalizer or a pre-tokenizer that we don't reproduce.
        NotAMap: the file is damaged.
    """
    model = cast("Mapping[str, Any]", document["model"])
    added = _read_added(document)
    # Files of older versions of `tokenizers` leave out the type: a model with merges is BPE.
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind == "Unigram":
        return _unigram(document, model, added)
    if kind != "BPE" or "merges" not in model:
        raise inexact(f"model {kind!r}", "BPE or Unigram")
    if not isinstance(model.get("vocab"), dict) or not isinstance(model["merges"], list):
        raise NotAMap("model.vocab and model.merges of the tokenizer.json are not an object and a list: it is damaged")
    _check_options(model)
    bpe = Tokenizer(
        vocab=by_id(cast("dict[str, int]", model["vocab"]) | added.special | added.ordinary),
        special_tokens=added.special,
        merges=[_merge(line) for line in as_list(cast("object", model["merges"]))],
        ignore_merges=model.get("ignore_merges") is True,
        added_tokens=list(added.ordinary),
    )
    return _metaspace(document, bpe) if model.get("byte_fallback") else _byte_level(document, bpe, model)


def _byte_level(document: Mapping[str, Any], bpe: Tokenizer, model: Mapping[str, Any]) -> Tokenizer:
    # An unknown token is only ever written for a byte that no token spells.
    if model.get("unk_token") is not None and missing_bytes(bpe.vocab):
        raise inexact(f"unk_token {model['unk_token']!r}", "a vocabulary that spells every byte")
    normalizer = _normalizer(document.get("normalizer"))
    if normalizer and bpe.added_tokens:
        raise inexact(f"added token {bpe.added_tokens[0]!r} with a normalizer", "only one of the two")
    return replace(bpe, pre_tokenizer=from_hugging_face(document.get("pre_tokenizer")), normalizer=normalizer)


def _metaspace(document: Mapping[str, Any], bpe: Tokenizer) -> Tokenizer:
    metaspace = read_metaspace_structure(document)
    if bpe.added_tokens and (metaspace.prefix != "never" or metaspace.split):
        raise inexact(f"added token {bpe.added_tokens[0]!r} with a space before the text", "only one of the two")
    return replace(bpe, encoder="metaspace", metaspace=metaspace, byte_fallback=byte_range(bpe.vocab))


def _unigram(document: Mapping[str, Any], model: Mapping[str, Any], added: _Added) -> Tokenizer:
    rows: object = model.get("vocab")
    if not isinstance(rows, list):
        raise NotAMap("model.vocab of the tokenizer.json is not a list of tokens and scores: it is damaged")
    pieces: dict[str, float] = {}
    for row in cast("list[object]", rows):
        match row:
            case [str(token), int() | float() as score] if token and token not in pieces:
                pieces[token] = float(score)
            case _:
                raise NotAMap(
                    f"model.vocab holds {str(row)[:80]!r}, expected a token that is listed once, and its score"
                )
    ids = {token: token_id for token_id, token in enumerate(pieces)}
    if model.get("byte_fallback") is not True:
        raise inexact("Unigram without byte_fallback", "a token for every byte")
    if added.ordinary:
        raise inexact(f"added token {next(iter(added.ordinary))!r} of a Unigram model", "no added blanks or tags")
    vocab = by_id(ids | added.special)
    return Tokenizer(
        vocab=vocab,
        special_tokens=added.special,
        encoder="metaspace",
        algorithm="unigram",
        metaspace=read_metaspace_structure(document),
        scores=[pieces.get(token, 0.0) for token in vocab],
        byte_fallback=byte_range(vocab),
    )


def _check_options(model: Mapping[str, Any]) -> None:
    for option, inert in _INERT.items():
        if model.get(option) not in inert:
            raise inexact(f"model.{option} {model[option]!r}", f"{option} to be unset")


def _read_added(document: Mapping[str, Any]) -> _Added:
    found = _Added({}, {})
    entries: Sequence[object] = document.get("added_tokens") or []
    for entry in entries:
        token = as_object(entry)
        text, token_id = token.get("content"), token.get("id")
        if not isinstance(text, str) or not text or type(token_id) is not int:
            raise NotAMap(f"an entry of added_tokens is {repr(token)[:100]}, expected {{id, content, ...}}")
        for option in ("lstrip", "rstrip", "single_word"):
            if token.get(option):
                raise inexact(f"added token {text!r} with {option}", f"{option} to be false")
        ordinary = is_ordinary(text, special=token.get("special") is True)
        (found.ordinary if ordinary else found.special)[text] = token_id
    return found


def _merge(line: object) -> str:
    """Return a merge as `left right`; newer files write a pair, older ones a line."""
    pair = line.split(" ") if isinstance(line, str) else line
    if not isinstance(pair, list) or len(cast("list[object]", pair)) != 2:
        raise NotAMap(f"a merge of the tokenizer.json is {str(line)[:100]!r}, expected two tokens")
    left, right = cast("list[str]", pair)
    if " " in left + right:
        raise inexact(f"merge {left!r} {right!r}", "tokens without spaces")
    return f"{left} {right}"


def _normalizer(node: object) -> Normalizer | None:
    kinds = [str(stage.get("type")) for stage in stages_of(node)]
    if not kinds:
        return None
    if len(kinds) == 1 and kinds[0] in _NORMALIZERS:
        return _NORMALIZERS[kinds[0]]
    named = repr(kinds[0]) if len(kinds) == 1 else shape_of(node)
    raise inexact(f"normalizer {named:.80}", f"none, or one of {', '.join(_NORMALIZERS)}")
