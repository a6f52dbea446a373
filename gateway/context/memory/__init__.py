"""What the gateway remembers of conversations: histories of messages, and their ids in the context. No IO."""

from gateway.context.memory.conversation_memory import ConversationMemory, Recalled, Turn, recalled
from gateway.context.memory.defined_tools import ANSWER, BEGINNING, FOUND_TOOLS, NO_TOOLS, DefinedTools
from gateway.context.memory.message_digests import RETOLD, Call, History, Miss, Misses, Shown, retold, root_digest
from gateway.context.memory.remembered import (
    SUMMARY,
    AnswerRecord,
    CallRecord,
    ContextChange,
    GenerationRecord,
    KeptResult,
    Lived,
    LivedAnswer,
    LivedTurn,
    Remembered,
    RequestFigures,
)

__all__ = [
    "ANSWER",
    "BEGINNING",
    "FOUND_TOOLS",
    "NO_TOOLS",
    "RETOLD",
    "SUMMARY",
    "AnswerRecord",
    "Call",
    "CallRecord",
    "ContextChange",
    "ConversationMemory",
    "DefinedTools",
    "GenerationRecord",
    "History",
    "KeptResult",
    "Lived",
    "LivedAnswer",
    "LivedTurn",
    "Miss",
    "Misses",
    "Recalled",
    "Remembered",
    "RequestFigures",
    "Shown",
    "Turn",
    "recalled",
    "retold",
    "root_digest",
]
