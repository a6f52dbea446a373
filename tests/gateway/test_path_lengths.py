"""How many modules and functions a request passes through: whoever changes one of them has to read the others."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import gateway
from tests.gateway.serve.generation.three_apis import CHAT, running

pytestmark = pytest.mark.anyio
_OURS: Final = f"{Path(gateway.__file__).parent}/"
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL: Final = 'I look.\n<tool_call>\n{"name": "%s", "arguments": {%s}}\n</tool_call>'


class Passed:
    """What was called of the gateway."""

    def __init__(self) -> None:
        self._called: set[tuple[str, str]] = set()

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            self._called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    @property
    def modules(self) -> set[str]:
        return {path for path, _ in self._called}

    @property
    def functions(self) -> set[tuple[str, str]]:
        """Those with a name: no lambdas, no comprehensions."""
        return {each for each in self._called if not each[1].endswith(">")}


@contextmanager
def followed() -> Generator[Passed]:
    passed = Passed()
    sys.setprofile(passed.note)
    try:
        yield passed
    finally:
        sys.setprofile(None)


async def test_path_of_a_conversation_that_goes_on_with_a_tool_of_its_client() -> None:
    async def asked(apis: Any, city: str) -> Passed:
        question = {"role": "user", "content": f"What is the weather in {city}?"}
        call = CALL % ("get_weather", f'"city": "{city}"')
        answer = await apis.ask(CHAT, {"messages": [question], "tools": [_TOOL]}, call)
        said = answer["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "Sun"}
        with followed() as passed:
            whole = await apis.ask(CHAT, {"messages": [question, said, result], "tools": [_TOOL]}, "It shines.")
        assert whole["codec"]["prompt"]["held"] > 0
        return passed

    async with running() as apis:
        # The first one with turns of this shape also finds out what the template writes around them.
        await asked(apis, "Bern")
        passed = await asked(apis, "Rome")

    assert len(passed.modules) <= 45
    assert len(passed.functions) <= 300


async def test_path_of_a_streamed_answer_with_a_tool_of_the_gateway() -> None:
    async with running(says="It is 42.") as apis:
        with followed() as passed:
            await apis.events(CHAT, {"messages": [{"role": "user", "content": "hi"}]}, CALL % ("say", ""), "It is 42.")
        assert len(apis.engine.prompts) == 2

    assert len(passed.modules) <= 80
