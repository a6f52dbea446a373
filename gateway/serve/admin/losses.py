"""How to avoid losing the engine's cache: one sentence for each reason of a loss.

Turns a reason and a place into words for a person. Pure.
"""

from typing import Final

_ADVICE: Final = {
    "client_changed": "message {message} changes at character {at} from request to request; if it is a system "
    "message, add a pattern that matches the changing part to engine.volatile",
    "tools_changed": "keep the tools of a conversation the same from request to request",
    "reasoning_dropped": "this model's template leaves out earlier reasoning, which no setting can change",
    "template_rewrote": "this model's template rewrites earlier turns, which no setting can change",
    "slot_taken": "there are more conversations than the engine has slots: raise engine.slots, or the size of its "
    "cache (engine.cache_mib)",
    "engine_restarted": "the engine was restarted; its log says why",
    "engine_moved": "another engine of the pool answered: the conversation's own was lost or too busy",
    "replica_moved": "the previous answer came from another replica or worker, or from this one before a restart; "
    "stickiness keeps a conversation where its cache is",
    "memory_full": "the gateway had no room to remember the conversation: raise limits.memory_bytes",
    "not_seen_before": "the conversation began elsewhere, before the last start, or under another key",
}


def advice_on_loss(reason: str, message: int | None, at: int | None) -> str:
    """What to do about it. `message`, `at`: the first message that differs, and the character at which it does."""
    return _ADVICE[reason].format(message=message, at=at)
