"""The spans of requests to an engine that have no messages: `text_completion MODEL` and `embeddings MODEL`.

By OpenTelemetry's conventions for generative AI (docs/gen-ai/client-inference.md there). They hold figures and
parameters, and neither the prompt nor what the model writes.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.engine.interface import Sampling
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.escape import escape_text

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

NAME_CUT: Final = 128


@dataclass(frozen=True, slots=True)
class PlainSpan:
    """A request to an engine while it runs, traced or not."""

    told: dict[str, Any] = field(default_factory=dict[str, Any])
    """Takes attributes until it ends."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """See `GenerateRequest.trace`."""


@contextmanager
def plain_span(
    tracing: "Tracing | None",
    operation: Literal["text_completion", "embeddings"],
    ready: ReadyEngine,
    asked_model: str | None,
    asked: Mapping[str, Any],
) -> Generator[PlainSpan]:
    """The span of a request to an engine that has no messages; no tracing: no span."""
    if tracing is None:
        yield PlainSpan()
        return
    model = escape_text(asked_model or ready.facts.model, NAME_CUT)
    names = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": ready.facts.api,
        "gen_ai.request.model": model,
    }
    with tracing.generation_span(f"{operation} {model}", {**names, **asked}) as span:
        plain = PlainSpan(headers=span.headers)
        try:
            yield plain
        finally:
            span.set({"gen_ai.response.model": ready.facts.model, "codec.engine": ready.name, **plain.told})


def sampling_attributes(sampling: Sampling) -> dict[str, Any]:
    """How the model is asked to choose."""
    numbers = {
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.seed": sampling.seed,
    }
    # Engines always stream to the gateway, whatever its client asks for.
    given = {name: number for name, number in numbers.items() if number is not None}
    return {**given, "gen_ai.request.stream": True}
