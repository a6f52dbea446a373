"""What mends a loss of the engine's cache: a sentence for each reason there is.

Turns a reason and a place into words for a person. Pure.
"""

from typing import Final

_ADVICE: Final = {
    "client_changed": "message {message} changes at character {at} from request to request; if it is a system text, "
    "add a pattern of what changes to engine.volatile",
    "tools_changed": "keep the tools of a conversation the same from request to request",
    "reasoning_dropped": "this model's template leaves earlier reasoning out; nothing is to be done here",
    "template_rewrote": "this model's template rewrites earlier turns; nothing is to be done here",
    "slot_taken": "more conversations than the engine has slots: raise engine.slots, or the memory of its cache "
    "(engine.cache_mib)",
    "engine_restarted": "the engine was started again; its log says why",
    "engine_moved": "another engine of the pool answered: its own was lost, or had too much to do",
    "replica_moved": "another replica or worker gave the answer before, or this one before it was started again; "
    "stickiness keeps a conversation where its cache is",
    "memory_full": "raise limits.memory_bytes",
    "not_seen_before": "the conversation began elsewhere, before the last start or under another key",
}


def advice_on_loss(reason: str, message: int | None, at: int | None) -> str:
    """What to do about it. `message`, `at`: the first message that differs, and where in it."""
    return _ADVICE[reason].format(message=message, at=at)
