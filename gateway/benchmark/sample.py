"""What one request came to, and all of them by server: the figures alone, never what was said.

Texts and ids are kept as digests, which is enough to compare them; the words of errors once for each kind. So the
memory of a run has a bound, which is that of its requests.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from gateway.benchmark.answer import AnswerFault, Told
from gateway.benchmark.histogram import Histogram
from gateway.observe.escape import escape_text

_WORDS: Final = 200


class Place(NamedTuple):
    """Where a request stands in the workload; the same for every server."""

    conversation: int
    step: int


@dataclass(frozen=True, slots=True)
class Timed:
    """The times and the bytes of one answer, whoever sent it."""

    first: float | None
    """Seconds from the request to the first decoded piece; None where nothing came before the end."""
    whole: float
    gaps: Sequence[float]
    """Seconds between the pieces."""
    socket_bytes: int
    """All that came over the connection, heads and sizes of chunks too."""
    body_bytes: int
    """The body as it was sent."""
    decoded_bytes: int
    """The body decompressed."""
    connect: float | None = None
    """Seconds that a new connection took, if one was made."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request that was answered."""

    place: Place
    began: float
    """Seconds after the start of the run; in an open loop when it was to be sent."""
    late: float
    """Seconds that it was sent later than it was to be; they are part of the times below."""
    connect: float | None
    first: float
    whole: float
    a_token: float | None
    """Seconds a token behind the first, where the server says how many there were."""
    socket_bytes: int
    body_bytes: int
    decoded_bytes: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    text: bytes | None
    """Its digest; None where there are ids alone."""
    ids: bytes | None
    """Their digest; None where there are none."""

    @property
    def bytes_a_token(self) -> float | None:
        """Bytes that came over the connection for each token; None where nobody said how many there were."""
        return self.socket_bytes / self.completion_tokens if self.completion_tokens else None


def sample_of(place: Place, began: float, late: float, timed: Timed, told: Told) -> Sample:
    """The figures of one answer."""
    first = timed.whole if timed.first is None else timed.first
    tokens = told.completion_tokens or len(told.ids)
    behind = timed.first is not None and timed.gaps and tokens > 1
    said = "\0".join([told.text, *(call["name"] + call["arguments"] for call in told.calls)])
    return Sample(
        place=place,
        began=began,
        late=late,
        connect=timed.connect,
        first=first + late,
        whole=timed.whole + late,
        a_token=sum(timed.gaps) / (tokens - 1) if behind else None,
        socket_bytes=timed.socket_bytes,
        body_bytes=timed.body_bytes,
        decoded_bytes=timed.decoded_bytes,
        prompt_tokens=told.prompt_tokens,
        cached_tokens=told.cached_tokens,
        completion_tokens=tokens or None,
        text=_digest(said) if said or not told.ids else None,
        ids=_digest(",".join(map(str, told.ids))) if told.ids else None,
    )


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


@dataclass(slots=True)
class Tally:
    """What has come of one server by now."""

    samples: list[Sample] = field(default_factory=list[Sample])
    between: Histogram = field(default_factory=Histogram)
    errors: dict[str, int] = field(default_factory=dict[str, int])
    words: dict[str, str] = field(default_factory=dict[str, str])
    """What was said of the first error of each kind, escaped."""
    running: int = 0
    unfinished: int = 0
    """Requests that the end of the run cut off."""
    cpu: float = 0.0
    """Seconds of its processes while it alone was asked; 0 where nobody can tell."""

    @contextmanager
    def request(self) -> Generator[None]:
        """Around one request: one that is cut off is counted as unfinished."""
        self.running += 1
        try:
            yield
        except BaseException:
            self.unfinished += 1
            raise
        finally:
            self.running -= 1

    def add(self, sample: Sample, gaps: Sequence[float]) -> None:
        """One more answer."""
        self.samples.append(sample)
        for gap in gaps:
            self.between.add(gap)

    def work(self, seconds: float) -> None:
        """Its processes took so much CPU."""
        self.cpu += seconds

    def fail(self, fault: AnswerFault) -> None:
        """One more request without a whole answer."""
        self.errors[fault.label] = self.errors.get(fault.label, 0) + 1
        self.words.setdefault(fault.label, escape_text(str(fault), _WORDS))

    @property
    def failed(self) -> int:
        """Requests without a whole answer."""
        return sum(self.errors.values())

    def values(self, metric: str) -> Iterator[float]:
        """A figure of every answer that has it."""
        for sample in self.samples:
            value = getattr(sample, metric)
            if value is not None:
                yield value
