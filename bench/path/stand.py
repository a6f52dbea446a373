"""What runs during a measurement: an engine, a gateway over it, and processes that only read or only pass on bytes.

Turns settings into running processes with a URL and a process id. It measures nothing.
"""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.first_delta import process
from bench.processes import Gateway, free_port, running, serving_gateway, wait_for_port
from bench.wire.streams import FOLDER
from codec_bench.processor import cpu_seconds
from gateway.engine.embedded.packaged_model import packaged_model


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine, and what it is."""

    url: str
    pid: int

    def sent(self) -> dict[int, list[float]]:
        """Return when each id of each stream was sent since the last call. Only the stub can tell."""
        with urlopen(f"{self.url}/stub/sent", timeout=60) as answer:
            return {int(number): times for number, times in json.load(answer).items()}


@contextmanager
def stub_engine() -> Generator[Engine]:
    """Run the stub."""
    port = free_port()
    with running("stub engine", [sys.executable, "-m", "bench.path.stub_engine", str(port)]) as program:
        wait_for_port(program, port)
        yield Engine(f"http://127.0.0.1:{port}", program.pid)


@contextmanager
def real_engine() -> Generator[Engine]:
    """Run the embedded llama.cpp server with SmolLM2 on one thread."""
    place = {"model": str(packaged_model()), "host": "127.0.0.1", "port": 0}
    settings = {**place, "context": 4096, "slots": 2, "threads": 1}
    with process("gateway.engine.embedded.child_process", json.dumps(settings)) as child:
        yield Engine((child.stdout.readline() if child.stdout else "").strip(), child.pid)


@contextmanager
def gateway_over(engine: Engine, folder: Path, servers: Mapping[str, Any] | None = None) -> Generator[Gateway]:
    """Run a gateway over an engine, with both dictionaries."""
    settings = f'[engine]\nurl = "{engine.url}"\n[wire]\n' + "".join(
        f'dictionary_{form} = "{FOLDER / "dictionaries" / form}.zstd"\n' for form in ("msgpack", "protobuf")
    )
    with serving_gateway(folder, servers or {}, settings=settings) as gateway:
        yield gateway


@dataclass(frozen=True, slots=True)
class Reader:
    """A process that only reads an engine's stream, with the gateway's own client."""

    child: subprocess.Popen[str]

    def read(self, number: int, rate: int, count: int) -> float:
        """Read one stream; return the CPU seconds that it took."""
        if self.child.stdin is None or self.child.stdout is None:
            raise SystemExit("the reading process has no pipes")
        before = cpu_seconds(self.child.pid)
        self.child.stdin.write(json.dumps([number, rate, count]) + "\n")
        self.child.stdin.flush()
        read = self.child.stdout.readline().strip()
        if not read.isdigit() or int(read) < count:
            raise SystemExit(f"the reading process read {read!r} ids, expected {count}")
        return cpu_seconds(self.child.pid) - before


@dataclass(frozen=True, slots=True)
class Relay:
    """A process that passes on the bytes of an engine."""

    url: str
    pid: int


@contextmanager
def relaying(engine: Engine) -> Generator[Relay]:
    """Run the relay."""
    port = free_port()
    with running("relay", [sys.executable, "-m", "bench.path.relaying", engine.url, str(port)]) as program:
        wait_for_port(program, port)
        yield Relay(f"http://127.0.0.1:{port}", program.pid)


@contextmanager
def reading(engine: Engine) -> Generator[Reader]:
    """Run the reading process; it has warmed up when this yields."""
    with process("bench.path.reading", engine.url) as child:
        reader = Reader(child)
        reader.read(0, 1000, 16)
        yield reader
