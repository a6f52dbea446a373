"""Spans of requests to an engine, by OpenTelemetry's conventions for generative AI (docs/gen-ai/client-inference.md).

A generation that runs becomes a span named `chat MODEL`; requests without messages are `text_completion MODEL` and
`embeddings MODEL`. Spans hold figures and parameters, and neither the prompt nor what the model writes. Without tracing
none of it runs.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.agent.generate.generation import Generation, GenerationResult
from gateway.agent.generate.generation_options import GenerationOptions
from gateway.context.compose.conversation import Conversation
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


async def traced(tracing: "Tracing", generation: Generation) -> GenerationResult:
    """Run a generation inside its span."""
    conversation = generation.conversation
    model = escape_text(conversation.asked.model or conversation.ready.facts.model, NAME_CUT)
    asked = {"gen_ai.request.model": model, **_asked(conversation, generation.options)}
    prompt = len(conversation.ids)
    with tracing.generation_span(f"chat {model}", asked) as span:
        # A span without them would look as if the model had ended it (note 18 of the conventions).
        told: dict[str, Any] = {"gen_ai.response.finish_reasons": ["error"]}
        used = False
        try:
            result = await generation.run(span.headers)
            used, told = True, _told(result)
            return result
        finally:
            # It may have moved to another engine.
            facts = conversation.ready.facts
            told |= {"gen_ai.response.model": facts.model, "codec.engine": conversation.ready.name}
            if generation.ttft is not None:
                told["gen_ai.response.time_to_first_chunk"] = generation.ttft
                used = True
            if used:
                told["gen_ai.usage.input_tokens"] = prompt
                told["gen_ai.usage.output_tokens"] = generation.generated
            span.set(told)


def _asked(conversation: Conversation, options: GenerationOptions) -> dict[str, Any]:
    """What the engine is asked for."""
    remembered = conversation.continuation.history is not None
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": conversation.ready.facts.api,
        "gen_ai.request.max_tokens": options.max_tokens,
        **({"gen_ai.conversation.id": conversation.first_answer_id} if remembered else {}),
        **sampling_attributes(options.sampling),
    }


def _told(result: GenerationResult) -> dict[str, Any]:
    """What a generation gave that was not cut off by an error."""
    reason = "length" if not result.stopped else "tool_calls" if result.calls else "stop"
    told: dict[str, Any] = {"gen_ai.response.finish_reasons": [reason]}
    if result.stats.timings is not None:
        told["gen_ai.usage.cache_read.input_tokens"] = result.stats.timings.cache_n
    if result.stats.reasoning:
        told["gen_ai.usage.reasoning.output_tokens"] = result.stats.reasoning
    return told
