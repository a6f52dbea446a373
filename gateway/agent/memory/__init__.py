"""What the gateway remembers of conversations: histories of messages, and the ids that they stood for. No IO."""

from gateway.agent.memory.history import Call, History, Shown, root_digest, schemas_of
from gateway.agent.memory.lived import Lived, LivedAnswer, LivedTurn
from gateway.agent.memory.misses import Miss, Misses
from gateway.agent.memory.store import ConversationMemory, Recalled, Remembered, Turn

__all__ = [
    "Call",
    "ConversationMemory",
    "History",
    "Lived",
    "LivedAnswer",
    "LivedTurn",
    "Miss",
    "Misses",
    "Recalled",
    "Remembered",
    "Shown",
    "Turn",
    "root_digest",
    "schemas_of",
]
