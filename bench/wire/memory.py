"""What an open stream takes on the server's side: the memory of its frame writer, flush gate and compressor, in KiB.

Each row is measured in a process of its own, as freed memory is not given back: it opens one stream, which warms up the
libraries, then a hundred more, each of 1,000 ids in flushes of five, and reports how much its resident memory grew per
stream.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, cast, get_args

from bench.wire.streams import dictionary, stream
from leaf_sdk.wire import CODINGS, Coding, Effort, FlushGate, Frame, FrameWriter, open_encoder

_STREAMS: Final = 100
_IDS: Final = 5


def measure() -> dict[str, float]:
    """Return the rows, by coding and effort."""
    rows: dict[str, float] = {}
    efforts: tuple[Effort, ...] = get_args(Effort)
    for coding in (*CODINGS, "zstd+dict"):
        for effort in efforts:
            command = [sys.executable, "-m", "bench.wire.memory", coding, effort]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            rows[f"{coding}, {effort}"] = json.loads(done.stdout)
    return rows


def _grown(coding: str, effort: Effort) -> float:
    ids = stream("prose")[:1000]
    kept = [_open(coding, effort, ids)]
    before = _resident()
    kept += [_open(coding, effort, ids) for _ in range(_STREAMS)]
    return round((_resident() - before) / _STREAMS / 1024, 1)


def _open(coding: str, effort: Effort, ids: tuple[int, ...]) -> tuple[Any, ...]:
    name, _, with_dictionary = coding.partition("+")
    encoder = open_encoder(cast("Coding", name), dictionary("protobuf") if with_dictionary else None, effort)
    writer, gate = FrameWriter("protobuf"), FlushGate()
    for at in range(0, len(ids), _IDS):
        for frame in gate.feed(Frame(ids[at : at + _IDS]), at):
            encoder.write(writer.write(frame))
            encoder.flush()
    return encoder, writer, gate


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(_grown(sys.argv[1], cast("Effort", sys.argv[2])))
