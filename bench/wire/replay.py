"""One stream in one variant: its bytes, how long each token takes to the client's decoder, and the CPU on both sides.

Time is virtual: token i leaves the engine at i / rate seconds, a piece arrives when it is sent, and a token counts as
received when its bytes have been decompressed and its frame read. So delays are exact and come only from holding back;
they include neither the network nor the CPU. CPU is measured around the same code.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Final, Literal, cast

from bench.wire import sse
from bench.wire.streams import dictionary
from leaf_sdk import TokenMap
from leaf_sdk.wire import (
    AT_ONCE,
    BATCH,
    Coding,
    Decoder,
    Dictionary,
    Effort,
    FlushGate,
    FlushPolicy,
    Format,
    Frame,
    FrameReader,
    FrameWriter,
    open_encoder,
)

Shape = Literal["json-sse", "msgpack", "protobuf"]
POLICIES: Final[dict[str, FlushPolicy | None]] = {
    "at once": AT_ONCE,
    "40 ms": FlushPolicy(0.040),
    "50 ms": FlushPolicy(0.050),
    "batch": BATCH,
    "never": None,
}
"""None: every token is written as it comes and the compressor is never flushed, as in the reference."""
_SLACK: Final = 1e-9
"""Times are sums of floats: a deadline at the same time as a token counts as earlier."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How a stream is sent."""

    shape: Shape
    coding: Coding
    dictionary: bool
    policy: str

    @property
    def effort(self) -> Effort:
        """The effort that the compressor is tuned for."""
        return "whole" if self.policy in ("batch", "never") else "streaming"

    @property
    def name(self) -> str:
        """The row's name."""
        return f"{self.shape} | {self.coding}{'+dict' if self.dictionary else ''} | {self.policy}"

    def loaded(self) -> Dictionary | None:
        """Return the dictionary, if the variant has one."""
        return dictionary(cast("Format", self.shape)) if self.dictionary else None


@dataclass(frozen=True, slots=True)
class Sent:
    """One piece of a body, and when it was sent, in seconds."""

    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Replay:
    """What one stream in one variant cost."""

    size: int
    delays: tuple[float, ...]
    """Seconds from engine to decoder, for each token."""
    server_cpu: float
    client_cpu: float
    """Seconds for the whole stream."""


def replay(ids: Sequence[int], rate: float, variant: Variant, token_map: TokenMap) -> Replay:
    """Send and receive a stream of at least one id, at a rate in tokens per second."""
    began = process_time()
    sent = list(_send(ids, rate, variant, token_map))
    between = process_time()
    arrivals = list(_receive(sent, variant))
    ended = process_time()
    delays = tuple(arrival - number / rate for number, arrival in enumerate(arrivals))
    if len(delays) != len(ids):
        raise AssertionError(f"{variant.name}: {len(delays)} tokens arrived, expected {len(ids)}")
    return Replay(sum(len(piece.data) for piece in sent), delays, between - began, ended - between)


def _send(ids: Sequence[int], rate: float, variant: Variant, token_map: TokenMap) -> Iterator[Sent]:
    encoder = open_encoder(variant.coding, variant.loaded(), variant.effort)
    policy = POLICIES[variant.policy]
    for at, data in _bodies(ids, rate, variant, token_map):
        piece = encoder.write(data) + (b"" if policy is None else encoder.flush())
        if piece:
            yield Sent(at, piece)
    yield Sent((len(ids) - 1) / rate, encoder.close())


def _bodies(ids: Sequence[int], rate: float, variant: Variant, token_map: TokenMap) -> Iterator[tuple[float, bytes]]:
    """Yield when bytes are written together, and the bytes, uncompressed."""
    write = _writer(ids, variant, token_map)
    gate = FlushGate(POLICIES[variant.policy] or AT_ONCE)
    for number, token in enumerate(ids):
        now = number / rate
        deadline = gate.deadline
        if deadline is not None and deadline <= now + _SLACK:
            yield deadline, b"".join(map(write, gate.tick(math.nextafter(deadline, math.inf))))
        due = gate.feed(Frame((token,)), now)
        if due:
            yield now, b"".join(map(write, due))
    yield (len(ids) - 1) / rate, b"".join(map(write, gate.feed(Frame((), True, "length"), math.inf)))


def _writer(ids: Sequence[int], variant: Variant, token_map: TokenMap) -> Callable[[Frame], bytes]:
    if variant.shape != "json-sse":
        return FrameWriter(variant.shape).write
    waiting = sse.events(ids, token_map)

    def write(frame: Frame) -> bytes:
        # One event per token, even for tokens sent together: JSON clients know no events of several tokens.
        return b"".join(next(waiting) for _ in range(len(frame.ids) + frame.done))

    return write


def _receive(sent: Sequence[Sent], variant: Variant) -> Iterator[float]:
    decoder = Decoder(variant.coding, dictionary=variant.loaded())
    read = _reader(variant)
    for piece in sent:
        for _ in range(read(decoder.feed(piece.data))):
            yield piece.at
    decoder.close()


def _reader(variant: Variant) -> Callable[[bytes], int]:
    """Return a function that counts the tokens that bytes complete."""
    if variant.shape == "json-sse":
        events = sse.EventReader()
        return lambda data: len(events.feed(data))
    reader = FrameReader(variant.shape)
    return lambda data: sum(len(frame.ids) for frame in reader.feed(data))
