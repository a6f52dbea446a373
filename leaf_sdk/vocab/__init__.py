"""Token maps: what a tokenizer is, as data. Sans-IO: bytes in, ids and text out.

`load_map` reads a Codec map, `build_map` makes one from a model's own tokenizer, `TokenMap` encodes and decodes,
`Detokenizer` decodes a stream. Builds on `errors` alone.
"""

from .blocks import ToolCalling, ZstdDictionary
from .build import build_map
from .compiled import compile_map, load_compiled
from .detokenizer import Detokenizer
from .digest import map_digest, normalise_hash
from .gguf import GgufTokenizer, read_gguf_tokenizer
from .read import load_map
from .token_map import TokenMap

__all__ = [
    "Detokenizer",
    "GgufTokenizer",
    "TokenMap",
    "ToolCalling",
    "ZstdDictionary",
    "build_map",
    "compile_map",
    "load_compiled",
    "load_map",
    "map_digest",
    "normalise_hash",
    "read_gguf_tokenizer",
]
