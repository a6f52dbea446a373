"""Where the ids of a context came from, recorded while it grows, and only where somebody asks for it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from gateway.observe.trajectories import Source, Span


@dataclass(slots=True)
class SourceTrail:
    """The sources of a context's ids after the first `kept`; those belong to the answer before."""

    kept: int = 0
    spans: list[Span] = field(default_factory=list[Span])

    def add(self, spans: Iterable[Span]) -> None:
        """Note the sources of ids that are appended."""
        for span in spans:
            last = self.spans[-1] if self.spans else None
            if last is not None and last.source == span.source and last.is_like(span):
                self.spans[-1] = last.of(last.count + span.count)
            elif span.count:
                self.spans.append(span)

    def keep(self, same: int) -> None:
        """Leave the first `same` ids to the answer before, which has the same ones.

        Ids between these and `kept` are the text of a turn that was cut, tokenized here.
        """
        cut, left = self.kept - same, same - self.kept
        spans, self.spans, self.kept = self.spans, [], same
        if cut > 0:
            self.add([Span("assistant", cut)])
        for span in spans:
            skipped = min(max(left, 0), span.count)
            left -= skipped
            self.add([span.of(span.count - skipped)])


@lru_cache(1024)
def span_without_tool(source: Source, count: int) -> Span:
    """Ids of a source that is no tool. Kept, since the same few lengths come again and again."""
    return Span(source, count)


def spans_of_text(role: str, count: int, name: str | None = None, server: str | None = None) -> Span:
    """The source of ids that were made from a message's text. `name`: the tool whose result it is; `server`: its
    server."""
    match role:
        case "user" | "assistant":
            return span_without_tool(role, count)
        case "tool":
            return Span("shim", count, name, server)
        case _:
            return span_without_tool("system", count)
