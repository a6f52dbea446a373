"""Records how an answer is made, for whoever looks at it afterwards: its generations and its calls.

Nothing is recorded unless somebody is watching. Pure.
"""

from array import array
from math import nan

from gateway.agent.calls.runner import FinishedCall
from gateway.agent.events import GenerationFinished
from gateway.context.compose.conversation import Conversation
from gateway.context.memory import CallRecord, GenerationRecord


def note_generation(conversation: Conversation, stats: GenerationFinished) -> None:
    """Keep the figures of a finished generation."""
    observer = conversation.observer
    if observer is None or not observer.watched:
        return
    timings, sampled = stats.timings, observer.sampled[-1]
    logprobs = (nan if each is None else each for each in sampled.logprobs[: sampled.count])
    observer.generations.append(
        GenerationRecord(
            start=sampled.start,
            count=sampled.count,
            reasoning=stats.reasoning,
            held=stats.held,
            cached=None if timings is None else timings.cache_n,
            prefilled=stats.prefilled,
            prefilled_seconds=stats.prefilled_seconds,
            first=stats.ttft,
            prompt_seconds=None if timings is None else timings.prompt_seconds,
            generate_seconds=None if timings is None else timings.generate_seconds,
            guessed=stats.guessed,
            logprobs=array("f", logprobs),
        )
    )


def note_call(conversation: Conversation, outcome: FinishedCall) -> None:
    """Keep the figures of a finished call."""
    observer = conversation.observer
    if observer is None or not observer.watched:
        return
    told = outcome.finished
    observer.calls.append(
        CallRecord(told.call_id, told.name, outcome.server, told.seconds, told.leaf_ids, told.shim_ids, told.is_error)
    )
