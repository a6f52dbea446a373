"""The structures by which a tokenizer.json says what happens to spaces, to a `Metaspace`.

Older files normalize (a `▁` in front, every space replaced), newer ones have a pre-tokenizer of that name; the two
differ where a text begins with a space. Any other structure is refused by name. Also finds the byte tokens, with which
such vocabularies spell what they have no token for.
"""

from collections.abc import Mapping
from typing import Any

from .fields import inexact
from .pre_tokenizers import shape_of, stages_of
from .tokenizer import Metaspace

_PREPEND = {"type": "Prepend", "prepend": "▁"}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
# Cuts at spaces, none of which are left by then.
_INERT_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def read_metaspace_structure(document: Mapping[str, Any]) -> Metaspace:
    """Recognise the normalizer and pre-tokenizer of a metaspace tokenizer.json.

    Raises:
        MapUnsupported: another structure.
    """
    normalizer, pre_tokenizer = document.get("normalizer"), document.get("pre_tokenizer")
    before, cut = stages_of(normalizer), [each for each in stages_of(pre_tokenizer) if each != _INERT_SPLIT]
    if before == [_PREPEND, _REPLACE] and not cut:
        return Metaspace("always")
    if before == [_REPLACE] and not cut:
        return Metaspace("never")
    if not before and len(cut) == 1 and cut[0].get("type") == "Metaspace":
        return _of_stage(cut[0])
    what = f"normalizer {shape_of(normalizer)} with pre_tokenizer {shape_of(pre_tokenizer)}"
    raise inexact(what, "Prepend and Replace, or Metaspace")


def byte_range(vocab: Mapping[str, int]) -> tuple[int, int]:
    """Find the ids of `<0x00>` and `<0xFF>`.

    Raises:
        MapUnsupported: a byte has no token, so some text can't be spelled, or the ids have gaps: no map can say that.
    """
    first = vocab.get("<0x00>", -1)
    missing = missing_byte(vocab, first)
    if missing is not None:
        raise inexact(f"a vocabulary without <0x{missing:02X}> in its row of bytes", "<0x00> to <0xFF>")
    return first, first + 255


def missing_byte(vocab: Mapping[str, int], first: int) -> int | None:
    """Find a byte without a token in the row of ids from `first` on, if any; an ASCII character may be its byte's."""
    for byte in range(256):
        character = vocab.get(chr(byte)) if byte < 0x80 else None
        if first + byte not in (vocab.get(f"<0x{byte:02X}>"), character):
            return byte
    return None


def _of_stage(stage: Mapping[str, Any]) -> Metaspace:
    scheme = stage.get("prepend_scheme", "always" if stage.get("add_prefix_space", True) else "never")
    if stage.get("replacement") != "▁" or scheme not in ("always", "first", "never"):
        raise inexact(f"pre_tokenizer {dict(stage)!r:.150}", "the replacement '▁' and a known prepend_scheme")
    return Metaspace(
        prefix="never" if scheme == "never" else "missing",
        first_only=scheme == "first",
        split=stage.get("split", True) is True,
    )
