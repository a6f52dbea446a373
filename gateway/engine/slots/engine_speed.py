"""How fast an engine is, as measured: seconds per prompt id and per generated id, bytes of a state, seconds per byte.

Turns measurements into what a swap, a recomputation and a pass will cost. It measures nothing itself. Until there is a
measurement, moving is assumed to be cheap, so that a first swap is made and measured.
"""

from dataclasses import dataclass, field
from typing import Final

from gateway.engine.interface import Timings

_FIRST_GUESS: Final = 1e-3
"""Seconds for an id, before the first prompt."""

_FADING: Final = 0.9
"""How much a measurement of a size counts, once there is another one."""
_ALIKE: Final = 1e-3
"""Lengths that vary by less than about 3 % of their mean count as one length."""

_REQUEST: Final = 2e-3
"""Seconds of a request to the engine, however much it moves."""


@dataclass(slots=True)
class _Ratio:
    """A quotient of two sums, in which measurements older than the last `window` count less and less."""

    window: float
    guess: float
    over: float = 0.0
    under: float = 0.0

    def add(self, over: float, under: float) -> None:
        self.over += over
        self.under += under
        while self.under > self.window:
            self.over /= 2
            self.under /= 2

    @property
    def value(self) -> float:
        return self.over / self.under if self.under else self.guess


@dataclass(slots=True)
class _Line:
    """Bytes by ids: so many each, and a constant part, which checkpoints and recurrent layers have.

    The line that fits the measurements best, the last ones more than earlier ones.
    """

    count: float = 0.0
    ids: float = 0.0
    size: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def add(self, ids: int, size: int) -> None:
        sums = (self.count, self.ids, self.size, self.squares, self.products)
        new = (1.0, float(ids), float(size), float(ids * ids), float(ids * size))
        self.count, self.ids, self.size, self.squares, self.products = (
            _FADING * before + each for before, each in zip(sums, new, strict=True)
        )

    def at(self, ids: int) -> float:
        """Bytes of a state of this many ids; 0 before the first measurement."""
        if not self.count:
            return 0.0
        spread = self.count * self.squares - self.ids**2
        each = (self.count * self.products - self.ids * self.size) / spread if spread > _ALIKE * self.ids**2 else 0.0
        constant = (self.size - each * self.ids) / self.count
        # Of one length only, it can't be told how much is constant.
        return constant + each * ids if each > 0 and constant > 0 else ids * self.size / self.ids


@dataclass(slots=True)
class Rates:
    """The rates of one engine, across its restarts."""

    _id_seconds: _Ratio = field(default_factory=lambda: _Ratio(20_000, _FIRST_GUESS))
    _step_seconds: _Ratio = field(default_factory=lambda: _Ratio(2_000, 0.0))
    _size: _Line = field(default_factory=_Line)
    _byte_seconds: _Ratio = field(default_factory=lambda: _Ratio(2.0**32, 0.0))

    def generated(self, timings: Timings) -> None:
        """Record a generation that has ended."""
        self.processed(timings.prompt_n, timings.prompt_seconds)
        # The first id comes with the prompt.
        if timings.generated_n > 1 and timings.generate_seconds > 0:
            self._step_seconds.add(timings.generate_seconds, timings.generated_n - 1)

    def processed(self, ids: int, seconds: float) -> None:
        """Record that this many ids of a prompt were processed."""
        if ids > 0 and seconds > 0:
            self._id_seconds.add(seconds, ids)

    @property
    def step(self) -> float:
        """Seconds from one generated id to the next, a pass of the engine; 0 before the first measurement."""
        return self._step_seconds.value

    def moved(self, ids: int, size: int, seconds: float) -> None:
        """Record that a state of this many ids and bytes was saved or restored, and its file read once."""
        if ids > 0 and size > 0:
            self._size.add(ids, size)
            self._byte_seconds.add(seconds, size)

    def to_process(self, ids: int) -> float:
        """Seconds that it will take to process this many ids of a prompt."""
        return ids * self._id_seconds.value

    def to_move(self, ids: int) -> float:
        """Seconds that it will take to save or restore a state of this many ids."""
        return _REQUEST + self._size.at(ids) * self._byte_seconds.value if ids else 0.0

    def size(self, ids: int) -> int:
        """Bytes of a state of this many ids; 0 before the first measurement."""
        return int(self._size.at(ids))
