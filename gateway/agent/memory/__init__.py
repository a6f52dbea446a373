"""What the gateway remembers of conversations: histories of messages, and the ids that they stood for. No IO."""

from gateway.agent.memory.history import RETOLD, Call, History, Shown, retold, root_digest, schemas_of
from gateway.agent.memory.lived import Lived, LivedAnswer, LivedTurn
from gateway.agent.memory.misses import Miss, Misses
from gateway.agent.memory.store import ConversationMemory, Recalled, Remembered, Turn

__all__ = [
    "RETOLD",
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
    "retold",
    "root_digest",
    "schemas_of",
]
