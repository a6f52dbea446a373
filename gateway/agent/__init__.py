"""The turn: engine, tool-call parser and proxy joined into answers."""

from gateway.agent.calls import CallRunner
from gateway.agent.conversation import Conversation
from gateway.agent.sampling import EngineSampler
from gateway.agent.turn import Agent, AnswerOptions, ToolChoice

__all__ = ["Agent", "AnswerOptions", "CallRunner", "Conversation", "EngineSampler", "ToolChoice"]
