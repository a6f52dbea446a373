"""An engine that renders and does not generate, in this process."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.engine.interface import EngineFacts
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineRefused
from gateway.toolcalls.formats.registry import ChosenFormat, format_named
from leaf_sdk.testing import tiny_map

TINY = tiny_map()


class Renderer:
    """Writes ChatML: a turn for each message, with its calls as Hermes writes them, and the tools as one list."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[Any], list[Any]]] = []
        """Messages and tools of each rendering."""
        self.refuses: Callable[[Sequence[Any]], bool] = lambda messages: False
        """Which messages it can't render."""

    async def apply_template(self, messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
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


@pytest.fixture
def renderer() -> Renderer:
    """What renders for `ready`."""
    return Renderer()


@pytest.fixture
def make_ready(renderer: Renderer) -> Callable[..., ReadyEngine]:
    """Make an engine; `preamble`, `calls_as_text`: see `ChosenFormat`; the rest are its facts."""

    def make(*, preamble: bool = False, calls_as_text: bool = False, **facts: Any) -> ReadyEngine:
        known = replace(EngineFacts("model", None, "template", True, len(TINY), 4000, 1, ()), **facts)
        given: Any = renderer
        return ReadyEngine(
            *(given, known, TINY, ChatTemplate(given, known, TINY), SlotTable(1, at_rest=at_rest)),
            ChosenFormat(format_named("hermes"), preamble, calls_as_text),
        )

    return make
