"""What the wire's tests share: frames as strategies, frames of golden vectors, and streams cut anywhere."""

import gc
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from leaf_sdk.wire import MAX_ID, NO_EXTRAS, Extras, Format, Frame, FrameReader, FrameWriter, Spliced, ToolCall, Usage

FORMATS: tuple[Format, ...] = ("msgpack", "protobuf")

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.lists(st.integers(0, MAX_ID) | st.integers(0, 50_000), max_size=6).map(tuple)
counts = st.integers(0, MAX_ID)
calls = st.builds(ToolCall, words, st.none() | words, st.none() | words)
usages = st.builds(Usage, counts, counts, st.none() | counts)
parts = st.builds(Spliced, ids, st.sampled_from(["leaf", "shim", "scaffold"]), st.none() | words)
extras = st.just(NO_EXTRAS) | st.builds(
    Extras,
    region_ids=ids,
    spliced=st.lists(parts, max_size=2).map(tuple),
    usage=st.none() | usages,
    error=st.none() | words,
    seq=st.none() | counts,
    prompt_ids=ids,
)
frames = st.builds(Frame, ids, st.just(False), st.none(), st.lists(calls, max_size=2).map(tuple), extras) | st.builds(
    Frame, ids
)
last_frames = st.builds(Frame, ids, st.just(True), st.none() | words, st.lists(calls, max_size=1).map(tuple), extras)
streams = st.tuples(st.lists(frames, max_size=6), last_frames).map(lambda pair: [*pair[0], pair[1]])


def golden_frame(fields: dict[str, Any]) -> Frame:
    """Make a frame of a vector's object."""
    found = tuple(ToolCall(**call) for call in fields.get("tool_calls", ()))
    return Frame(tuple(fields["ids"]), fields["done"], fields.get("finish_reason"), found)


def written(form: Format, stream: Sequence[Frame]) -> bytes:
    """Write a whole stream."""
    writer = FrameWriter(form)
    return b"".join(writer.write(frame) for frame in stream)


def read(form: Format, data: bytes) -> list[Frame]:
    """Read a whole stream."""
    reader = FrameReader(form)
    return reader.feed(data) + reader.close()


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Cut bytes at places, which may lie beyond the end."""
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def resident_growth() -> Callable[[Callable[[], object]], int]:
    """Say by how many bytes the resident memory grows while something runs."""

    def growth(work: Callable[[], object]) -> int:
        gc.collect()
        before = _resident()
        work()
        return _resident() - before

    return growth
