"""The reference's own lengths, streams and frames, replayed here: bytes, and the time to the first decoded token.

Eight lengths from 16 to 2,048 tokens at the rate that its engine had, its four synthetic streams, and what a token
takes in frames of 1, 4, 8 and 16. Time is virtual (`replay.py`), so nothing here depends on the machine, and only other
compressors would give other figures. `python -m bench.wire.lengths` writes `results/lengths.json`.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from bench.record import write
from bench.wire.replay import Variant, replay
from bench.wire.streams import stream
from gateway.engine.packaged_model import packaged_model
from leaf_sdk import TokenMap, open_map
from leaf_sdk.wire import Coding, Format, Frame, FrameWriter

LENGTHS: Final = (16, 32, 64, 128, 256, 512, 1024, 2048)
RATE: Final = 545
"""Tokens a second of the engine under the reference's timed runs."""
RECORDED: Final = ("greedy", "prose")
SYNTHETIC: Final = ("uniform", "half one id", "fifty ids", "ten in a circle")
SHAPES: Final = (1, 4, 8, 16)
_FORMATS: Final[tuple[Format, ...]] = ("msgpack", "protobuf")
_CODINGS: Final[tuple[tuple[Coding, bool], ...]] = (("gzip", False), ("br", False), ("zstd", False), ("zstd", True))
_VOCABULARY: Final = 152_064
_COMMA: Final = 11
_PACKAGES: Final = ("codec-leaf", "msgpack", "protobuf", "brotli", "backports-zstd")


def variants(name: str) -> Iterator[Variant]:
    """Give how a stream is sent: as JSON events, as frames, and as frames that are compressed in three ways."""
    # The synthetic ids are those of another vocabulary, and have no text here.
    if name in RECORDED:
        yield Variant("json-sse", "identity", dictionary=False, policy="at once")
    for form in _FORMATS:
        yield Variant(form, "identity", dictionary=False, policy="at once")
        for coding, dictionary in _CODINGS:
            for policy in ("40 ms", "batch", "never"):
                yield Variant(form, coding, dictionary, policy)


def ids_of(name: str, count: int) -> Sequence[int]:
    """Give the first ids of a stream: recorded, or one of the reference's, by its recipe and vocabulary."""
    chance = random.Random(name)
    match name:
        case "uniform":
            return [chance.randrange(_VOCABULARY) for _ in range(count)]
        case "half one id":
            return [_COMMA if chance.random() < 0.5 else chance.randrange(_VOCABULARY) for _ in range(count)]
        case "fifty ids":
            return [chance.randrange(50) for _ in range(count)]
        case "ten in a circle":
            return [number % 10 for number in range(count)]
        case _:
            return stream(name)[:count]


def one(name: str, count: int, variant: Variant, token_map: TokenMap) -> dict[str, Any]:
    """Give the row of a stream in a variant."""
    found = replay(ids_of(name, count), RATE, variant, token_map)
    return {"bytes": found.size, "first_ms": round(1e3 / RATE + found.delays[0] * 1e3, 1)}


def measure(lengths: Sequence[int], token_map: TokenMap) -> dict[str, Any]:
    """Replay everything once: a second time would give the same."""
    scenes = [(name, count) for name in RECORDED for count in lengths]
    scenes += [(name, lengths[-1]) for name in SYNTHETIC]
    rows = {
        f"{name} | {count}": {each.name: one(name, count, each, token_map) for each in variants(name)}
        for name, count in scenes
    }
    shapes = {form: {str(ids): bytes_in_frames(form, ids) for ids in SHAPES} for form in _FORMATS}
    return {"rate": RATE, "rows": rows, "bytes_a_token_by_ids_a_frame": shapes}


def bytes_in_frames(form: Format, ids_a_frame: int) -> float:
    """Give the bytes of a token of prose in frames of so many, the frame that ends the stream not among them."""
    ids, writer = stream("prose")[:1024], FrameWriter(form)
    frames = (Frame(ids[at : at + ids_a_frame]) for at in range(0, len(ids), ids_a_frame))
    return round(sum(len(writer.write(frame)) for frame in frames) / len(ids), 2)


def main(*, short: bool) -> None:
    """Replay, and write or print."""
    token_map = open_map(packaged_model())
    if short:
        print(json.dumps(measure(LENGTHS[:2], token_map), indent=1))
        return
    write("lengths", _PACKAGES, measure(LENGTHS, token_map))


if __name__ == "__main__":
    main(short="--short" in sys.argv)
