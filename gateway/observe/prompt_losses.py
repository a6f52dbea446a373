"""Why prompt tokens were recomputed that the engine had cached: the reasons, what each means, and what to do about it.

Turns a reason, as the APIs and the metrics name it, into a sentence. The console, `codec-gateway why` and the table of
reasons in docs/openai-apps.md use the same ones. Pure.
"""

from collections.abc import Mapping
from typing import Final, Literal

LossReason = Literal[
    "client_changed",
    "options_changed",
    "tools_changed",
    "reasoning_dropped",
    "template_rewrote",
    "slot_taken",
    "engine_rewound",
    "engine_restarted",
    "engine_moved",
    "replica_moved",
    "memory_full",
    "not_seen_before",
]
"""Why ids that the engine held were processed again."""
WORDS: Final[Mapping[str, str]] = {
    "client_changed": "the client changed an earlier message, so the prompt differs from there on",
    "options_changed": "the options of the chat template are not those of the previous request",
    "tools_changed": "the conversation had no tools before, or most of those that it had are gone, so the prompt was "
    "rendered with the tools of this request",
    "reasoning_dropped": "the chat template leaves out the reasoning of earlier turns",
    "template_rewrote": "the chat template renders earlier turns differently once they are no longer the last",
    "slot_taken": "another conversation used the slot, and the cache of this one was evicted; an engine that does not "
    "report its slots may also have rewound (engine_rewound)",
    "engine_rewound": "the slot still had this conversation, but the engine went back to an earlier checkpoint of it: "
    "models with a sliding window or a recurrent state can't continue everywhere",
    "engine_restarted": "the engine was restarted, which emptied its cache",
    "engine_moved": "another engine of the pool answered, and its cache does not have this conversation",
    "replica_moved": "another replica or worker gave the previous answer, or this one did before a restart: this one's "
    "engine does not have all of the conversation in its cache",
    "memory_full": "the gateway evicted the conversation from its memory, so the prompt was rendered from the messages",
    "not_seen_before": "this gateway has no earlier answer of this conversation for this caller",
}
"""What happened, by reason."""
_ADVICE: Final = {
    "client_changed": "message {message} changes at character {at}; if it is a system message that changes with each "
    "request, add a pattern that matches the changing part to engine.volatile",
    "options_changed": "keep them the same from request to request of a conversation",
    "tools_changed": "keep names and descriptions the same from request to request of a conversation",
    "reasoning_dropped": "no setting can change that",
    "template_rewrote": "no setting can change that",
    "slot_taken": "if only this gateway generates with a llama-server at a URL, set engine.exclusive, so that the "
    "gateway chooses the slots; if there are more conversations than slots, raise engine.slots (llama-server -np), or "
    "the size of the engine's cache (engine.cache_mib)",
    "engine_rewound": "no setting of the gateway can change that; llama-server's --swa-full caches a sliding window "
    "whole, for more memory",
    "engine_restarted": "its log says why",
    "engine_moved": "the engine that had it was down or too busy",
    "replica_moved": "stickiness keeps a conversation where its cache is",
    "memory_full": "raise limits.memory_bytes",
    "not_seen_before": "it began elsewhere, before the last start, or under another key",
}


def advice_on_loss(reason: str, message: int | None, at: int | None) -> str:
    """What to do about it. `message`, `at`: the first message that differs, and the character at which it does."""
    return _ADVICE[reason].format(message=message, at=at)
