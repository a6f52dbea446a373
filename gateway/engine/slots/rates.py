"""How fast an engine is, as measured: seconds per prompt id and per generated id, bytes per id, seconds per byte.

Turns measurements into what a swap, a recomputation and a pass will cost. It measures nothing itself. Until there is a
measurement, moving is assumed to be cheap, so that a first swap is made and measured.
"""

from dataclasses import dataclass, field
from typing import Final

from gateway.engine.interface import Timings

_FIRST_GUESS: Final = 1e-3
"""Seconds for an id, before the first prompt."""

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
class Rates:
    """The rates of one engine, across its restarts."""

    _id_seconds: _Ratio = field(default_factory=lambda: _Ratio(20_000, _FIRST_GUESS))
    _step_seconds: _Ratio = field(default_factory=lambda: _Ratio(2_000, 0.0))
    _id_bytes: _Ratio = field(default_factory=lambda: _Ratio(20_000, 0.0))
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
            self._id_bytes.add(size, ids)
            self._byte_seconds.add(seconds, size)

    def to_process(self, ids: int) -> float:
        """Seconds that it will take to process this many ids of a prompt."""
        return ids * self._id_seconds.value

    def to_move(self, ids: int) -> float:
        """Seconds that it will take to save or restore a state of this many ids."""
        return _REQUEST + ids * self._id_bytes.value * self._byte_seconds.value if ids else 0.0

    def size(self, ids: int) -> int:
        """Bytes of a state of this many ids; 0 before the first measurement."""
        return int(ids * self._id_bytes.value)
