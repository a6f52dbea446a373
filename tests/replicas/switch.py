"""`python -m tests.replicas.switch NAME:NUMBER...`: a switch between hosts, which can delay, lose and cut off.

Makes a network interface `tap-NAME` for each host, and passes Ethernet frames between them by the number in which their
address ends. Orders come as lines of JSON on standard input; each is answered with `done`.
"""

import asyncio
import fcntl
import json
import os
import random
import struct
import sys
from dataclasses import dataclass, field

_TUNSETIFF, _TAP_WITHOUT_HEAD = 0x400454CA, 0x1002
_FRAME = 65536


@dataclass
class Wires:
    """What becomes of a frame. Knows no interface."""

    names: dict[int, str]
    """By the number in which a host's address ends."""
    delay: float = 0.0
    loss: float = 0.0
    cuts: set[frozenset[str]] = field(default_factory=set)
    draw: random.Random = field(default_factory=lambda: random.Random(1))

    def order(self, told: dict[str, object]) -> None:
        """From now on so."""
        self.delay, self.loss = float(told["delay"]), float(told["loss"])  # type: ignore[arg-type]
        self.cuts = {frozenset(cut) for cut in told["cuts"]}  # type: ignore[attr-defined]

    def targets(self, source: int, frame: bytes) -> list[int]:
        """The hosts that a frame reaches."""
        if self.loss and self.draw.random() < self.loss:
            return []
        everybody = frame[0] & 1
        found = [number for number in self.names if number != source] if everybody else [frame[5]]
        return [each for each in found if each in self.names and not self._is_cut(source, each)]

    def _is_cut(self, source: int, target: int) -> bool:
        return frozenset((self.names[source], self.names[target])) in self.cuts


def _say_done() -> None:
    sys.stdout.write("done\n")
    sys.stdout.flush()


def _tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", f"tap-{name}".encode(), _TAP_WITHOUT_HEAD))
    return tap


async def _pass_on(wires: Wires, taps: dict[int, int]) -> None:
    loop = asyncio.get_running_loop()

    def write(number: int, frame: bytes) -> None:
        try:
            os.write(taps[number], frame)
        except OSError:
            return  # Its host is full, or not up: frames are lost so.

    def read(number: int) -> None:
        for _ in range(64):
            try:
                frame = os.read(taps[number], _FRAME)
            except OSError:
                return
            for target in wires.targets(number, frame):
                if wires.delay:
                    loop.call_later(wires.delay, write, target, frame)
                else:
                    write(target, frame)

    for number, tap in taps.items():
        loop.add_reader(tap, read, number)
    _say_done()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        wires.order(json.loads(line))
        _say_done()


if __name__ == "__main__":
    asked = {int(number): name for name, _, number in (word.partition(":") for word in sys.argv[1:])}
    asyncio.run(_pass_on(Wires(asked), {number: _tap(name) for number, name in asked.items()}))
