"""What the gateway remembers of conversations: histories of messages, and their ids in the context. No IO."""

from gateway.agent.memory.history import RETOLD, Call, History, Shown, retold, root_digest, schemas_of
from gateway.agent.memory.lived import Lived, LivedAnswer, LivedTurn
from gateway.agent.memory.misses import Miss, Misses
from gateway.agent.memory.record import AnswerRecord, CallRecord, GenerationRecord, Notes
from gateway.agent.memory.remembered import Remembered
from gateway.agent.memory.request_figures import RequestFigures
from gateway.agent.memory.store import ConversationMemory, Recalled, Turn

__all__ = [
    "RETOLD",
    "AnswerRecord",
    "Call",
    "CallRecord",
    "ConversationMemory",
    "GenerationRecord",
    "History",
    "Lived",
    "LivedAnswer",
    "LivedTurn",
    "Miss",
    "Misses",
    "Notes",
    "Recalled",
    "Remembered",
    "RequestFigures",
    "Shown",
    "Turn",
    "retold",
    "root_digest",
    "schemas_of",
]
