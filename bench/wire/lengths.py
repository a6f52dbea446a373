"""The reference's own lengths, streams and frames, replayed here: bytes, and the time to the first decoded token.

Eight lengths from 16 to 2,048 tokens at the rate of its engine, its synthetic streams, the bytes per token in frames of
1, 4, 8 and 16, and the call of a tool. Time is virtual (`replay.py`), so nothing here depends on the machine, and only
other compressors would give other figures. `python -m bench.wire.lengths` writes `results/lengths.json`.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from bench.record import write
from bench.wire import sse
from bench.wire.replay import Variant, replay
from bench.wire.streams import stream
from gateway.agent.events import AgentEvent, Finished, IdsGenerated
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.serve.codec.frames import FrameReply, Regions
from gateway.serve.generation.request_fields import WatchIds
from leaf_sdk import TokenMap, open_map
from leaf_sdk.wire import CODINGS, Coding, Format, Frame, FrameWriter

LENGTHS: Final = (16, 32, 64, 128, 256, 512, 1024, 2048)
RATE: Final = 545
"""Tokens per second of the engine in the reference's timed runs."""
RECORDED: Final = ("greedy", "prose")
SYNTHETIC: Final = ("uniform", "half one id", "fifty ids", "ten in a circle")
SWEPT: Final = ("random", "one word")
SWEEP: Final = (256, 1024, 8192)
SHAPES: Final = (1, 4, 8, 16)
_FORMATS: Final[tuple[Format, ...]] = ("msgpack", "protobuf")
_CODINGS: Final[tuple[tuple[Coding, bool], ...]] = (("gzip", False), ("br", False), ("zstd", False), ("zstd", True))
_VOCABULARY: Final = 152_064
_COMMA: Final = 11
_WORD: Final = 3002
"""The token of `word`: all of the reference's JSON events have this text, whatever the ids."""
_CALL: Final = '\n{"name": "get_weather", "arguments": {"city": "Tokyo"}}\n'
_PROMPT: Final = 5
"""Tokens of the prompt, as stated in the events."""
_MARKERS: Final = WatchIds(3, 5)
"""Two special tokens of SmolLM2, in place of the reference's markers: its own would be five tokens each."""
_PACKAGES: Final = ("codec-leaf", "msgpack", "protobuf", "brotli", "backports-zstd")


def variants(name: str) -> Iterator[Variant]:
    """Yield the ways to send a stream: as JSON events, as frames, and as frames compressed in three ways."""
    if name == "one word":
        for coding in CODINGS:
            yield Variant("json-sse", coding, dictionary=False, policy="at once" if coding == "identity" else "never")
        return
    # The synthetic ids are those of another vocabulary, and have no text here.
    if name in RECORDED:
        yield Variant("json-sse", "identity", dictionary=False, policy="at once")
    for form in _FORMATS:
        yield Variant(form, "identity", dictionary=False, policy="at once")
        for coding, dictionary in _CODINGS:
            for policy in ("40 ms", "batch", "never"):
                yield Variant(form, coding, dictionary, policy)


def ids_of(name: str, count: int) -> Sequence[int]:
    """Return the first ids of a stream: recorded, or one of the reference's, by its recipe and vocabulary."""
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
        case "random":
            return list(_random(count))
        case "one word":
            return [_WORD] * count
        case _:
            return stream(name)[:count]


def _random(count: int) -> Iterator[int]:
    """Yield the ids of the reference's sweep, by its generator."""
    seed = 0xDEADBEEF
    for _ in range(count):
        seed = (seed * 1_664_525 + 1_013_904_223) % 2**32
        yield seed % 2**17


def one(name: str, count: int, variant: Variant, token_map: TokenMap) -> dict[str, Any]:
    """Return the row of a stream in a variant."""
    found = replay(ids_of(name, count), RATE, variant, token_map)
    return {"bytes": found.size, "first_ms": round(1e3 / RATE + found.delays[0] * 1e3, 1)}


def one_call(token_map: TokenMap) -> dict[str, int]:
    """Return the bytes of an answer that calls a tool: in events, in frames, and in frames with the call parsed."""
    ids = (_MARKERS.start, *token_map.encode(_CALL), _MARKERS.end)
    events: list[AgentEvent] = [*(IdsGenerated((token,)) for token in ids), Finished("stop", _PROMPT, 0, len(ids))]
    found = {"tokens": len(ids), "json-sse": sum(map(len, sse.events(ids, token_map)))}
    for form in _FORMATS:
        for who, regions in (("client", None), ("server", Regions(_MARKERS, token_map, name_calls=True))):
            reply = FrameReply(regions=regions)
            frames = enumerate(frame for event in events for frame in reply.feed(event))
            sent = (frame if frame.is_plain else _numbered(frame, number) for number, frame in frames)
            found[f"{form}, the {who} finds the call"] = sum(map(len, map(FrameWriter(form).write, sent)))
    return found


def _numbered(frame: Frame, number: int) -> Frame:
    """Number a frame as in the gateway's streams."""
    return replace(frame, extras=replace(frame.extras, seq=number))


def measure(lengths: Sequence[int], sweep: Sequence[int], token_map: TokenMap) -> dict[str, Any]:
    """Replay everything once: a second time would give the same."""
    scenes = [(name, count) for name in RECORDED for count in lengths]
    scenes += [(name, lengths[-1]) for name in SYNTHETIC]
    scenes += [(name, count) for name in SWEPT for count in sweep]
    rows = {
        f"{name} | {count}": {each.name: one(name, count, each, token_map) for each in variants(name)}
        for name, count in scenes
    }
    shapes = {form: {str(ids): bytes_in_frames(form, ids) for ids in SHAPES} for form in _FORMATS}
    return {
        "rate": RATE,
        "rows": rows,
        "bytes_a_token_by_ids_a_frame": shapes,
        "random_in_frames_of_8": {form: bytes_in_frames(form, 8, "random") for form in _FORMATS},
        "call": one_call(token_map),
    }


def bytes_in_frames(form: Format, ids_a_frame: int, name: str = "prose") -> float:
    """Return the bytes per token of a stream in frames of so many ids, without the frame that ends the stream."""
    ids, writer = ids_of(name, 1024), FrameWriter(form)
    frames = (Frame(tuple(ids[at : at + ids_a_frame])) for at in range(0, len(ids), ids_a_frame))
    return round(sum(len(writer.write(frame)) for frame in frames) / len(ids), 2)


def main(*, short: bool) -> None:
    """Replay, and write or print."""
    token_map = open_map(packaged_model())
    if short:
        print(json.dumps(measure(LENGTHS[:2], SWEEP[:1], token_map), indent=1))
        return
    write("lengths", _PACKAGES, measure(LENGTHS, SWEEP, token_map))


if __name__ == "__main__":
    main(short="--short" in sys.argv)
