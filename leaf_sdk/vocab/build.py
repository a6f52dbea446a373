"""A model's own tokenizer file, of any known kind, to the bytes of a Codec map.

Canonical and deterministic: the same tokenizer gives the same bytes, so the same map id, on every machine. The kinds
are told apart by their bytes, and each has a reader: `gguf_tokenizer`, `hugging_face`, `sentencepiece_model`,
`tiktoken_file`. A map of a GGUF file describes what llama.cpp does with it; any other map, what the library for that
kind of file does.
"""

import re
from collections.abc import Mapping
from typing import Any

from leaf_sdk.errors import NotAMap

from .digest import check_bytes
from .fields import json_object
from .gguf import GgufTokenizer, read_gguf_tokenizer
from .gguf_head import MAGIC
from .gguf_tokenizer import read_gguf
from .hugging_face import read_tokenizer_json
from .pre_tokenizers import PreTokenizer
from .sentencepiece_model import looks_like_a_model, read_sentencepiece
from .tiktoken_file import looks_like_ranks, read_ranks, read_tekken
from .tokenizer import Tokenizer
from .write import write_tokenizer

_MAP_ID = re.compile(r"[a-z0-9_-][a-z0-9._-]*(/[a-z0-9_-][a-z0-9._-]*)*")


def build_map(
    source: bytes | memoryview,
    *,
    id: str | None = None,  # noqa: A002 - the map's own field name
    cut: PreTokenizer | None = None,
    special_tokens: Mapping[str, int] | None = None,
) -> bytes:
    """Build the bytes of a Codec map from a model's GGUF file, tokenizer.json, SentencePiece or tiktoken file.

    Args:
        source: the file's bytes; for a GGUF file, preferably a memory map of it.
        id: `org/family` in lower case; by default taken from the GGUF file, or "local/tokenizer".
        cut: how text is cut, which a tiktoken rank file does not say; see `leaf_sdk.vocab.tiktoken_file.CUTS`.
        special_tokens: for a tiktoken rank file, its special tokens by their text.

    Raises:
        TypeError: `source` is a path, for example: `open_map` reads files.
        NotAMap: not such a file, or a damaged one; or `id` has another form.
        MapTruncated: a GGUF file that ends inside its head.
        MapUnsupported: a tokenizer that we can't reproduce exactly.
    """
    check_bytes(source, "build_map")
    if id is not None and not is_map_name(id):
        raise NotAMap(f"map id {id!r} is not of the form 'org/family', expected lower-case letters, digits and ._-")
    if bytes(source[:4]) == MAGIC:
        gguf = read_gguf_tokenizer(source)
        return write_tokenizer(id or _name(gguf), read_gguf(gguf), chat_template=gguf.chat_template)
    return write_tokenizer(id or "local/tokenizer", _read(bytes(source), cut, special_tokens or {}))


def is_map_name(name: str) -> bool:
    """Return whether a map may have this name: whether discovery can serve it as a path."""
    return _MAP_ID.fullmatch(name) is not None


def is_source(document: Mapping[str, Any]) -> bool:
    """Return whether parsed JSON is a tokenizer's file, from which a map is built, and not a map itself."""
    return ("model" in document and "vocab" not in document) or _is_tekken(document)


def _read(source: bytes, cut: PreTokenizer | None, special_tokens: Mapping[str, int]) -> Tokenizer:
    if looks_like_a_model(source):
        return read_sentencepiece(source)
    if looks_like_ranks(source):
        return read_ranks(source, cut, special_tokens)
    document = json_object(source, "a GGUF file, a Hugging Face tokenizer.json, a SentencePiece or a tiktoken file")
    if _is_tekken(document):
        return read_tekken(document)
    if _is_map(document):
        raise NotAMap(
            f"the file is already a Codec map, {str(document['id'])[:80]!r}, not a tokenizer's file: "
            "use it as it is, or rewrite it with codec-leaf map convert"
        )
    if not isinstance(document.get("model"), dict):
        raise NotAMap("the JSON has no `model` object, expected a Hugging Face tokenizer.json")
    return read_tokenizer_json(document)


def _is_tekken(document: Mapping[str, Any]) -> bool:
    return "config" in document and isinstance(document.get("vocab"), list)


def _is_map(document: Mapping[str, Any]) -> bool:
    """Return whether it is a map of either version: version 1 calls its vocabulary `tokens`."""
    return {"id", "vocab_size"} <= document.keys() and ("vocab" in document or "tokens" in document)


def _name(gguf: GgufTokenizer) -> str:
    return f"{_slug(gguf.organization) or 'local'}/{_slug(gguf.name) or 'gguf'}"


def _slug(text: str | None) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", (text or "").lower()).strip("-")
