"""The turn: engine, tool-call parser and proxy joined into answers."""

from gateway.agent.agent import Agent
from gateway.agent.calls import CallRunner
from gateway.agent.choice import ToolChoice
from gateway.agent.completion import Completer, CompletionOptions, Prompt
from gateway.agent.conversation import Conversation
from gateway.agent.offers import EVERY_TOOL, NO_TOOL, ToolScope
from gateway.agent.turn import AnswerOptions

__all__ = [
    "EVERY_TOOL",
    "NO_TOOL",
    "Agent",
    "AnswerOptions",
    "CallRunner",
    "Completer",
    "CompletionOptions",
    "Conversation",
    "Prompt",
    "ToolChoice",
    "ToolScope",
]
