"""What writing and reading frames costs by itself, beside codecai and JSON; and handing 1,024 tokens to another agent.

Microseconds of CPU per token, at 1, 8 and 64 ids per frame, and milliseconds per handoff: as text (decoded, sent as
JSON, parsed and encoded again) and as ids (written as frames and read). Pieces of work take turns, in samples of 20 ms.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from codecai.stream import decode_msgpack_stream, decode_protobuf_frame

from bench.leaf import timed
from bench.record import summary
from bench.wire.streams import stream
from leaf_sdk import TokenMap
from leaf_sdk.wire import MEDIA_TYPES, Format, Frame, FrameReader, FrameWriter

IDS: Final = (1, 8, 64)
_FRAMES: Final = 32
_HANDED: Final = 1024

Work = Callable[[], object]


def frames() -> dict[str, Any]:
    """Time a frame of 1, 8 and 64 ids in every format, divided by the number of its ids."""
    return {str(count): _of_frames(count) for count in IDS}


def _of_frames(count: int) -> dict[str, Any]:
    ids = stream("prose")
    batch = [Frame(ids[number : number + count]) for number in range(_FRAMES)]
    works: dict[str, Work] = {}
    for form in MEDIA_TYPES:
        writer, reader = FrameWriter(form), FrameReader(form)
        data = [FrameWriter(form).write(frame) for frame in batch]
        works[f"{form}, write"] = lambda writer=writer: [writer.write(frame) for frame in batch]
        works[f"{form}, read"] = lambda reader=reader, data=data: [reader.feed(piece) for piece in data]
    works |= _others(batch)
    return {name: _per(row, _FRAMES * count) for name, row in timed(works).items()}


def _others(batch: list[Frame]) -> dict[str, Work]:
    fields = [{"ids": list(frame.ids), "done": False} for frame in batch]
    texts = [json.dumps(each) for each in fields]
    messages = [FrameWriter("protobuf").write(frame)[4:] for frame in batch]
    maps = [FrameWriter("msgpack").write(frame) for frame in batch]
    return {
        "JSON, write": lambda: [json.dumps(each) for each in fields],
        "JSON, read": lambda: [json.loads(text) for text in texts],
        "codecai protobuf, read": lambda: [decode_protobuf_frame(message) for message in messages],
        "codecai msgpack, read": lambda: _run(_read_all(maps)),
    }


async def _read_all(maps: list[bytes]) -> list[object]:
    async def body() -> AsyncIterator[bytes]:
        for data in maps:
            yield data

    return [frame async for frame in decode_msgpack_stream(body())]


def _run(coroutine: Any) -> object:
    """Run a coroutine that waits for nothing, without the cost of an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("codecai waited for something; it has nothing to wait for here")


def handoff(token_map: TokenMap) -> dict[str, Any]:
    """Time handing 1,024 tokens of prose from one agent's context to another's, in milliseconds."""
    ids = stream("prose")[:_HANDED]
    rows = timed({"text": lambda: _by_text(ids, token_map), **_by_ids(ids)})
    sizes = {"text": len(json.dumps({"text": token_map.decode(ids)}))}
    sizes |= {form: len(FrameWriter(form).write(Frame(ids, done=True))) for form in MEDIA_TYPES}
    return {name: {"bytes": sizes[name], "ms": _per(row, 1e3)} for name, row in rows.items()}


def _by_text(ids: tuple[int, ...], token_map: TokenMap) -> list[int]:
    body = json.dumps({"text": token_map.decode(ids)})
    return list(token_map.encode(json.loads(body)["text"]))


def _by_ids(ids: tuple[int, ...]) -> dict[str, Work]:
    def hand(form: Format) -> object:
        return FrameReader(form).feed(FrameWriter(form).write(Frame(ids, done=True)))

    return {form: lambda form=form: hand(form) for form in MEDIA_TYPES}


def _per(row: Mapping[str, Any], divisor: float) -> dict[str, Any]:
    return summary([sample / divisor for sample in row["samples"]])
