"""The figures of one request, and of all requests to a server, but never what was said.

Texts and ids are kept as digests, which is enough to compare them; the text of an error is kept once for each kind. So
the memory of a run is bounded by the number of its requests.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple

from codec_bench.answer import AnswerContent, AnswerFault
from codec_bench.histogram import Histogram
from gateway.escape import escape_text

_WORDS: Final = 200


class Position(NamedTuple):
    """The position of a request in the workload; the same for every server."""

    conversation: int
    step: int


@dataclass(frozen=True, slots=True)
class Timed:
    """The times and the bytes of one answer, in whatever form it was sent."""

    first: float | None
    """Seconds from the request to the first decoded piece; None if there was none before the end."""
    whole: float
    gaps: Sequence[float]
    """Seconds between the pieces."""
    socket_bytes: int
    """All that was received over the connection, including heads and chunk sizes."""
    body_bytes: int
    """The body as it was sent."""
    decoded_bytes: int
    """The body decompressed."""
    connect: float | None = None
    """Seconds that a new connection took, if one was made."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request that was answered."""

    position: Position
    began: float
    """Seconds after the start of the run at which it was sent; in an open loop, at which it was due."""
    late: float
    """Seconds by which it was sent late; they are included in the times below."""
    connect: float | None
    first: float
    whole: float
    a_token: float | None
    """Seconds per token after the first; None if the number of tokens or the times between them are not known."""
    socket_bytes: int
    body_bytes: int
    decoded_bytes: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    text: bytes | None
    """The digest of the text; None if there are only ids."""
    ids: bytes | None
    """The digest of the ids; None if there are none."""

    @property
    def bytes_a_token(self) -> float | None:
        """Bytes received over the connection for each token; None if the number of tokens is not known."""
        return self.socket_bytes / self.completion_tokens if self.completion_tokens else None


def sample_of(position: Position, began: float, late: float, timed: Timed, content: AnswerContent) -> Sample:
    """The figures of one answer."""
    first = timed.whole if timed.first is None else timed.first
    tokens = content.completion_tokens or len(content.ids)
    behind = timed.first is not None and timed.gaps and tokens > 1
    said = "\0".join([content.text, *(call["name"] + call["arguments"] for call in content.calls)])
    return Sample(
        position=position,
        began=began,
        late=late,
        connect=timed.connect,
        first=first + late,
        whole=timed.whole + late,
        a_token=sum(timed.gaps) / (tokens - 1) if behind else None,
        socket_bytes=timed.socket_bytes,
        body_bytes=timed.body_bytes,
        decoded_bytes=timed.decoded_bytes,
        prompt_tokens=content.prompt_tokens,
        cached_tokens=content.cached_tokens,
        completion_tokens=tokens or None,
        text=_digest(said) if said or not content.ids else None,
        ids=_digest(",".join(map(str, content.ids))) if content.ids else None,
    )


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


@dataclass(slots=True)
class Tally:
    """The results of one server so far."""

    samples: list[Sample] = field(default_factory=list[Sample])
    between: Histogram = field(default_factory=Histogram)
    errors: dict[str, int] = field(default_factory=dict[str, int])
    words: dict[str, str] = field(default_factory=dict[str, str])
    """The text of the first error of each kind, escaped."""
    running: int = 0
    unfinished: int = 0
    """Requests that the end of the run cut off."""
    cpu: float = 0.0
    """CPU seconds of its processes while it alone was asked; 0 if they are not known."""

    @contextmanager
    def request(self) -> Generator[None]:
        """The context of one request: one that is cut off is counted as unfinished."""
        self.running += 1
        try:
            yield
        except BaseException:
            self.unfinished += 1
            raise
        finally:
            self.running -= 1

    def add(self, sample: Sample, gaps: Sequence[float]) -> None:
        """Add an answer."""
        self.samples.append(sample)
        for gap in gaps:
            self.between.add(gap)

    def work(self, seconds: float) -> None:
        """Add CPU time that its processes took."""
        self.cpu += seconds

    def fail(self, fault: AnswerFault) -> None:
        """Add a request without a complete answer."""
        self.errors[fault.label] = self.errors.get(fault.label, 0) + 1
        self.words.setdefault(fault.label, escape_text(str(fault), _WORDS))

    @property
    def failed(self) -> int:
        """Requests without a complete answer."""
        return sum(self.errors.values())

    def values(self, metric: str) -> Iterator[float]:
        """Yield one figure of every answer that has it."""
        for sample in self.samples:
            value = getattr(sample, metric)
            if value is not None:
                yield value
