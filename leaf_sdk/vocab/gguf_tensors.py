"""Where the tensors of a GGUF file end, so that a file that was cut short is found out without loading it.

Turns the description of the tensors behind the head into the least size of the whole file. Of a tensor type that is not
known here only the beginning counts, so that a newer llama.cpp's types are not refused. No tensor is read.

Source: the GGUF specification, and `type_traits` in ggml.c.
"""

from collections.abc import Mapping
from math import prod
from typing import Final, cast

from leaf_sdk.errors import NotAMap

from .gguf_head import GgufHead

_ALIGNMENT: Final = 32
_MOST_DIMENSIONS: Final = 4
_QUANTS: Final = {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292}  # Q2_K to Q8_K
_SMALL: Final = {16: 66, 17: 74, 18: 98, 19: 50, 21: 110, 22: 82, 23: 136, 29: 56}  # IQ2_XXS to IQ4_XS, IQ1_M
_SIZES: Final[Mapping[int, Mapping[int, int]]] = {
    1: {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2},  # F32, F16, I8 to I64, F64, BF16
    32: {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 9: 36, 20: 18, 39: 17},  # Q4_0 to Q8_1, IQ4_NL, MXFP4
    256: _QUANTS | _SMALL | {34: 54, 35: 66},  # TQ1_0, TQ2_0
}
"""Bytes of a block of so many elements, by the number of the type."""
_BLOCKS: Final = {kind: (block, size) for block, kinds in _SIZES.items() for kind, size in kinds.items()}


def least_size(head: GgufHead) -> int:
    """The bytes that a file with this head has at least. The head's cursor is moved behind the tensors' descriptions.

    Raises:
        NotAMap: the descriptions are damaged.
        MapTruncated: the bytes end inside them.
    """
    cursor, end = head.cursor, 0
    for _ in range(head.tensors):
        cursor.string()
        count = cast("int", cursor.scalar("I"))
        if count > _MOST_DIMENSIONS:
            raise NotAMap(f"a tensor claims {count} dimensions, expected at most {_MOST_DIMENSIONS}: it is damaged")
        elements = prod(cast("int", cursor.scalar("Q")) for _ in range(count))
        block, size = _BLOCKS.get(cast("int", cursor.scalar("I")), (elements or 1, 0))
        offset = cast("int", cursor.scalar("Q"))
        end = max(end, offset + elements // block * size)
    if not head.tensors:
        return cursor.at
    alignment = head.pairs.get("general.alignment")
    step = alignment if type(alignment) is int and alignment > 0 else _ALIGNMENT
    return -(-cursor.at // step) * step + end
