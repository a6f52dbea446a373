"""The turn: engine, tool-call parser and proxy joined into answers."""

from gateway.agent.agent import Agent
from gateway.agent.calls.request_tools import EVERY_TOOL, NO_DEFERRAL, NO_TOOL, Deferral, ToolScope
from gateway.agent.calls.runner import CallRunner
from gateway.agent.calls.tool_finder import OURS
from gateway.agent.generate.completion import Completer, CompletionOptions, Prompt
from gateway.agent.generate.generation_options import ToolChoice
from gateway.agent.turn import AnswerOptions
from gateway.context.compose.conversation import Conversation, SearchTool

__all__ = [
    "EVERY_TOOL",
    "NO_DEFERRAL",
    "NO_TOOL",
    "OURS",
    "Agent",
    "AnswerOptions",
    "CallRunner",
    "Completer",
    "CompletionOptions",
    "Conversation",
    "Deferral",
    "Prompt",
    "SearchTool",
    "ToolChoice",
    "ToolScope",
]
