"""How long what a generation leaves in the engine's cache will be needed: as long as its tools usually take.

Turns the durations of earlier calls into what a router is told before it knows whether the model will call anything. It
chooses no slot and sends nothing. The gateway does not see how long a client's own tools take.
"""

from collections.abc import Sequence
from typing import Final

from gateway.context.compose.conversation import Conversation
from gateway.engine.interface import Retention
from gateway.observe.metrics import Metrics

_MOST: Final = 0.9
"""The part of the calls that are waited for."""
_CALLS: Final = 20
"""Fewer calls than this say nothing about the slowest tenth."""
_LONGEST: Final = 10.0
"""Seconds; a cache that is kept for longer costs others more than processing it again. vllm-router's own bound for the
times that it chooses by itself (`max_acting_ttl_seconds`)."""


def retention_of(conversation: Conversation, metrics: Metrics, *, words: bool = False) -> Retention | None:
    """What follows a generation; None for an engine that does not ask. `words`: whether it may call no more tools."""
    if not conversation.ready.facts.can.retention:
        return None
    asked, tools = conversation.asked, conversation.tools
    calls = bool(tools) and asked.may_call and not words
    if not calls or any(conversation.is_clients(tool.name) for tool in tools):
        return Retention(conversation.first_answer_id, continues=calls)
    servers = {asked.server_of(tool.name) for tool in tools} - {None}
    return Retention(conversation.first_answer_id, True, usual_seconds(metrics.call_times(*filter(None, servers))))


def usual_seconds(times: Sequence[tuple[float, int]]) -> float | None:
    """Seconds after which nine of ten calls are over; None: too few calls are known, or these take too long.

    `times`: upper bounds in seconds, and how many calls took no longer than this and longer than the bound before.
    """
    known = sum(count for _, count in times)
    if known < _CALLS:
        return None
    over = 0
    for bound, count in times:
        over += count
        if over >= _MOST * known:
            return bound if bound <= _LONGEST else None
    return None
