"""An engine that renders in this process, and a model whose turns a test writes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gateway.config import LimitsConfig
from gateway.context.compose.conversation import Conversation
from gateway.context.compose.recall import Recall
from gateway.context.memory import Call, LivedTurn
from gateway.engine.interface import EngineFacts
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineRefused
from gateway.observe.trajectories import Span
from gateway.toolcalls.formats.registry import ChosenFormat, format_named
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
END = TINY.special_tokens["<|im_end|>"]
HERMES = format_named("hermes")


class Renderer:
    """Writes ChatML: a turn for each message, with its calls as Hermes writes them, and the tools as one list."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], list[Any]]] = []
        """Messages and tools of each rendering."""
        self.refuses: Callable[[Sequence[Any]], bool] = lambda messages: False
        """Which messages it can't render."""

    async def apply_template(self, messages: Sequence[Any], tools: Sequence[Any] = (), options: Any = None) -> str:
        self.asked.append((list(messages), list(tools)))
        if self.refuses(messages):
            raise EngineRefused("no", 500)
        head = f"<|im_start|>system\n{json.dumps(tools)}<|im_end|>\n" if tools else ""
        return "".join((head, *map(self.turn, messages), "<|im_start|>assistant\n"))

    def turn(self, message: Any) -> str:
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        calls = [f'{{"name": "{each["name"]}", "arguments": {each["arguments"]}}}' for each in functions]
        texts = (message.get("content") or "", *(f"<tool_call>\n{call}\n</tool_call>" for call in calls))
        words = "\n".join(filter(None, texts))
        return f"<|im_start|>{message['role']}\n{words}<|im_end|>\n"


async def at_rest(number: int) -> bool:
    return True


def make_ready(
    renderer: Renderer | None = None,
    *,
    preamble: bool = False,
    calls_as_text: bool = False,
    rewind: Any = "anywhere",
    options: Mapping[str, Any] = MappingProxyType({}),
    **facts: Any,
) -> ReadyEngine:
    """An engine; `preamble`, `calls_as_text`: see `ChosenFormat`; `facts`: those of the engine that matter."""
    known = replace(EngineFacts("model", None, "template", True, len(TINY), 4000, 1, ()), **facts)
    given: Any = renderer or Renderer()
    return ReadyEngine(
        *(given, known, TINY, ChatTemplate(given, known, TINY, options), SlotTable(1, at_rest=at_rest, rewind=rewind)),
        ChosenFormat(HERMES, preamble, calls_as_text),
    )


def call(number: int = 0, name: str = "look", arguments: str = "{}") -> CallClosed:
    """A call that the model has written."""
    return CallClosed(number, f"c{number}", name, arguments, ())


def written_call(each: CallClosed) -> str:
    """A call as the model writes it: otherwise than the template does."""
    return f'<tool_call>{{"arguments":{each.arguments},"name":"{each.name}"}}</tool_call>'


def write(conversation: Conversation, content: str, *calls: CallClosed, reasoning: str = "", **turn: Any) -> list[int]:
    """Let the model write a turn; return its ids. The rest: see `write_text`."""
    thought = f"<think>{reasoning}</think>" if reasoning else ""
    words = "".join((thought, content, *map(written_call, calls)))
    return write_text(conversation, words, *calls, content=content, reasoning=reasoning, **turn)


def write_text(
    conversation: Conversation,
    words: str,
    *calls: CallClosed,
    content: str = "",
    reasoning: str = "",
    shown: bool = True,
    **turn: Any,
) -> list[int]:
    """Let the model write these words, with this content, reasoning and calls in them; return their ids.

    `shown`: whether its client is shown the calls.
    """
    ids = TINY.encode(words, specials=True)
    fields = {"content": bool(content), "reasoning": bool(reasoning), "ended_by": END, **turn}
    start, lived = len(conversation.ids), LivedTurn(calls, **fields)
    conversation.context.write(ids, lived)
    conversation.lived.add_turn(start, ids, content, reasoning, lived, len(ids))
    conversation.lived.content.append(content)
    conversation.lived.reasoning.append(reasoning)
    conversation.lived.calls += [Call(each.id, each.name, each.arguments) for each in calls if shown]
    conversation.held = len(conversation.ids)
    return ids


async def run(conversation: Conversation, *results: str) -> list[list[int]]:
    """Let the gateway run the calls of the last turn; return the ids of these results."""
    contents = [TINY.encode(result) for result in results]
    calls = conversation.context.last.calls
    spans = [(Span("leaf", len(ids), each.name, "up"),) for each, ids in zip(calls, contents, strict=True)]
    conversation.splice(await conversation.around_results(), contents, spans)
    for each, ids, sources in zip(calls, contents, spans, strict=True):
        conversation.lived.add_result(each.id, each.name, ids, sources)
    return contents


def text(ids: Sequence[int]) -> str:
    """All of it, control tokens too."""
    return TINY.decode(ids)


def echo(conversation: Conversation) -> dict[str, Any]:
    """The answer as its client sends it back."""
    return {"role": "assistant", **conversation.lived.shown.message}


def said(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": content, **more}


def result(number: int, content: str) -> dict[str, Any]:
    """The result of a call, from the client."""
    return said("tool", content, tool_call_id=f"c{number}")


class Counts:
    """Metrics that keep what they are told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def request_answered(self, *, prompt: int, cached: int) -> None:
        self.told.append((prompt, cached))

    def prompt_ids_lost(self, reason: str, n: int) -> None:
        self.told.append((reason, n))


def new_recall(**more: Any) -> Recall:
    """A gateway's memory; by name: its limits, and its other arguments."""
    given = {key: more.pop(key) for key in ("metrics", "trajectories", "shared") if key in more}
    return Recall(LimitsConfig(**more), given.pop("metrics", Counts()), **given)
