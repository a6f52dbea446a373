"""Where the ids of a conversation came from, recorded while it grows, and only where somebody asks for it.

`spans` describe the ids after the first `kept`; those belong to the answer before.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from gateway.context.compose.definitions import DefinitionCache
from gateway.observe.trajectories import Sampled, Source, Span


@dataclass(slots=True)
class Trail:
    """The sources of one conversation's ids."""

    definitions: DefinitionCache
    """Where the definitions of tools were found before."""
    logprobs: bool = False
    """Whether the engine is asked how probable its ids were."""
    before: str | None = None
    """The id of the answer that it continues from."""
    kept: int = 0
    spans: list[Span] = field(default_factory=list[Span])
    sampled: list[Sampled] = field(default_factory=list[Sampled])

    def rendered(self, spans: Iterable[Span]) -> None:
        """Note the sources of a whole prompt."""
        self.kept, self.spans = 0, []
        self.add(spans)

    def add(self, spans: Iterable[Span]) -> None:
        """Note the sources of ids that are appended."""
        for span in spans:
            last = self.spans[-1] if self.spans else None
            if last is not None and last.source == span.source and last.is_like(span):
                self.spans[-1] = last.of(last.count + span.count)
            elif span.count:
                self.spans.append(span)

    def wrote(self, turn: Sampled) -> None:
        """Note the model's turn that is appended."""
        self.sampled.append(turn)
        self.add([plain_span("model", turn.count)])

    def goes_on(self, before: str, same: int) -> None:
        """Note the answer that it continues from. `same`: ids at its beginning that are the same as that answer's.

        Ids between these and `kept` are the text of a turn that was cut, tokenized here.
        """
        cut, left = self.kept - same, same - self.kept
        spans, self.spans = self.spans, []
        self.before, self.kept = before, same
        if cut > 0:
            self.add([Span("assistant", cut)])
        for span in spans:
            skipped = min(max(left, 0), span.count)
            left -= skipped
            self.add([span.of(span.count - skipped)])


@lru_cache(1024)
def plain_span(source: Source, count: int) -> Span:
    """Ids of a source that is no tool. Kept, since the same few lengths come again and again."""
    return Span(source, count)


def spans_of_text(role: str, count: int, name: str | None = None, server: str | None = None) -> Span:
    """The source of ids that were made from a message's text. `name`: the tool whose result it is; `server`: its
    server."""
    match role:
        case "user" | "assistant":
            return plain_span(role, count)
        case "tool":
            return Span("shim", count, name, server)
        case _:
            return plain_span("system", count)
