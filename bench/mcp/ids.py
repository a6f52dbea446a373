"""What rows about token ids need: the packaged model's map, and ids of the texts that the server answers with.

Turns the packaged model into two files, and measures how long encoding and decoding take by themselves, in this
process: the least that a gateway which does either must pay. The engine is not started.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from bench.library import library_of
from bench.mcp.upstream import SIZES, text_of
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.fetch import map_bytes
from leaf_sdk.leaf import CODEC_META_KEY, MetaTokenizer
from leaf_sdk.vocab import load_map, map_digest

_ROUNDS = 2000


@dataclass(frozen=True, slots=True)
class Ids:
    """The files, and the map's name."""

    map_path: Path
    map_id: str
    leaves: Path


def make_ids(folder: Path) -> Ids:
    """Write the map and the ids."""
    data = map_bytes(packaged_model())
    token_map = load_map(data)
    meta = MetaTokenizer(token_map.map_id, token_map, token_map.encode)
    paths = folder / "map.json", folder / "leaves.json"
    paths[0].write_bytes(data)
    leaves = {str(size): {CODEC_META_KEY: meta.payload(text_of(size))} for size in SIZES}
    paths[1].write_text(json.dumps(leaves), encoding="utf-8")
    return Ids(paths[0], map_digest(data), paths[1])


def own_times(ids: Ids, size: int) -> dict[str, float]:
    """Return the microseconds of CPU for encoding and decoding a text of this size, and for the library's encoding."""
    token_map = load_map(ids.map_path.read_bytes())
    library = library_of(token_map)
    text = text_of(size)
    encoded = token_map.encode(text)
    if library(text) != encoded:
        raise SystemExit("the library gives other ids than the map; nothing was measured")
    return {
        "encode_us": _microseconds(lambda: token_map.encode(text)),
        "library_encode_us": _microseconds(lambda: library(text)),
        "decode_us": _microseconds(lambda: token_map.decode(encoded)),
    }


def _microseconds(work: Callable[[], object]) -> float:
    began = process_time()
    for _ in range(_ROUNDS):
        work()
    return (process_time() - began) / _ROUNDS * 1e6
