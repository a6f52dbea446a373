"""The span of one generation, by OpenTelemetry's conventions for generative AI (docs/gen-ai/client-inference.md there).

Turns a generation that runs into a span named `chat MODEL`. It holds figures and parameters, and neither the prompt nor
what the model writes. Without tracing none of it runs.
"""

from typing import TYPE_CHECKING, Any

from gateway.agent.generate.generation import Generation, GenerationResult
from gateway.agent.generate.generation_options import GenerationOptions
from gateway.agent.generate.plain_span import NAME_CUT, sampling_attributes
from gateway.context.compose.conversation import Conversation
from gateway.escape import escape_text

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


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
