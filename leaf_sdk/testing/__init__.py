"""What a tool author needs for tests: a small real map, strategies for texts and ids, one assertion about a result.

    def test_my_tool_is_a_leaf():
        assert_leaf_result(wrap_tool_call(my_tool(), tiny_meta()), tiny_map())

The tiny map has every byte, a few merges and four special tokens. It is built in code: no file, no network, the same
bytes everywhere. Only the strategies import Hypothesis. Used by tests, never by the SDK itself.
"""

import json
from functools import cache
from typing import TYPE_CHECKING

from leaf_sdk.leaf import MetaTokenizer, check_ids, read_codec_meta
from leaf_sdk.vocab import TokenMap, load_map
from leaf_sdk.vocab.byte_level import ALPHABET
from leaf_sdk.vocab.pre_tokenizers import GPT2, to_map

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["assert_leaf_result", "ids", "texts", "tiny_map", "tiny_map_bytes", "tiny_meta"]

_MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "Ġwor l", "Ġworl d", "i n", "Ġ t", "Ġt he"]
_SPECIALS = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
# Ids have a gap before the special tokens, as real vocabularies do: a range check by size would be wrong here.
_FIRST_SPECIAL_ID = 300


def tiny_map_bytes() -> bytes:
    """Return the tiny map as the bytes of a Codec map, for tests that need a file or an address."""
    tokens = [*ALPHABET, *(line.replace(" ", "") for line in _MERGES)]
    specials = {token: _FIRST_SPECIAL_ID + place for place, token in enumerate(_SPECIALS)}
    fields = {
        "id": "codec-test/tiny",
        "version": "2",
        "vocab_size": len(tokens) + len(specials),
        "vocab": {token: token_id for token_id, token in enumerate(tokens)} | specials,
        "encoder": "byte_level",
        "merges": _MERGES,
        **to_map(GPT2),
        "special_tokens": specials,
        "tool_calling": {
            "convention": "qwen25",
            "markers": {"start": "<tool_call>", "end": "</tool_call>"},
            "args_format": "json",
            "result_format": "json",
        },
    }
    return json.dumps(fields, ensure_ascii=False, indent=2).encode()


@cache
def tiny_map() -> TokenMap:
    """Return the tiny map."""
    return load_map(tiny_map_bytes())


def tiny_meta() -> MetaTokenizer:
    """Return the `MetaTokenizer` of the tiny map, for `wrap_tool_call`."""
    token_map = tiny_map()
    return MetaTokenizer(token_map.map_id, token_map, token_map.encode)


def assert_leaf_result(result: object, token_map: TokenMap) -> None:
    """Assert that every text of a result carries ids of this map that say exactly what the text says.

    Raises:
        AssertionError: a block has no ids or wrong ones; the message names it and what is wrong.
        CodecMetaMapMismatchError: a block carries ids of another map.
    """
    for leaf in read_codec_meta(result, token_map.map_id):
        where = f"content[{leaf.text_index}] ({leaf.text[:40]!r})"
        if leaf.ids is None:
            raise AssertionError(f"{where} carries no ids; was the result passed through wrap_tool_call?")
        rejection = check_ids(token_map, leaf.text, leaf.ids)
        if rejection is not None:
            raise AssertionError(f"{where} carries bad ids: {rejection.reason}: {rejection.detail}")


def texts() -> "SearchStrategy[str]":
    """Return a strategy for texts that break tokenizers: any Unicode, and what tools return, even markers and emoji."""
    from hypothesis import strategies as st

    hard = ["<|im_end|>", "<tool_call>", "\r\n", "  ", "\t", "👩‍👩‍👧", "é", "e\u0301", "１２", "don't", "x" * 40]
    unicode = st.characters(exclude_categories=["Cs"])
    return st.one_of(st.text(unicode), st.lists(st.one_of(st.sampled_from(hard), st.text(unicode))).map("".join))


def ids(token_map: TokenMap) -> "SearchStrategy[list[int]]":
    """Return a strategy for lists of ids that the map has, special ones included."""
    from hypothesis import strategies as st

    known = sorted({*token_map.vocab.values(), *token_map.special_tokens.values()})
    return st.lists(st.sampled_from(known))
