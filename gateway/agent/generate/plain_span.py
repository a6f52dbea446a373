"""The spans of requests to an engine that have no messages: `text_completion MODEL` and `embeddings MODEL`.

By OpenTelemetry's conventions for generative AI (docs/gen-ai/client-inference.md there). They hold figures and
parameters, and neither the prompt nor what the model writes.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.engine.interface import Sampling
from gateway.engine.start.readiness import ReadyEngine
from gateway.observe.escape import escape_text

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

NAME_CUT: Final = 128


@contextmanager
def plain_span(
    tracing: "Tracing | None",
    operation: Literal["text_completion", "embeddings"],
    ready: ReadyEngine,
    asked_model: str | None,
    asked: Mapping[str, Any],
) -> Generator[dict[str, Any]]:
    """The span of a request to an engine that has no messages. Takes attributes until it ends; no tracing: no span."""
    told: dict[str, Any] = {}
    if tracing is None:
        yield told
        return
    model = escape_text(asked_model or ready.facts.model, NAME_CUT)
    names = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": ready.facts.api,
        "gen_ai.request.model": model,
    }
    with tracing.generation_span(f"{operation} {model}", {**names, **asked}) as span:
        try:
            yield told
        finally:
            span.set({"gen_ai.response.model": ready.facts.model, "codec.engine": ready.name, **told})


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
