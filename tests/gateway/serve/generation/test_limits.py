"""An answer that a limit ended behind calls: the next request continues from the ids that the engine holds."""

from typing import Any

import pytest

from tests.cases import each_of
from tests.gateway.serve.generation.three_apis import CHAT, SCHEMA, TINY, running

pytestmark = pytest.mark.anyio

ASK: dict[str, Any] = {"role": "user", "content": "hi"}
AGAIN: dict[str, Any] = {"role": "user", "content": "and?"}
BARE = '{"name": "say", "arguments": {}}'
FENCE = f"```json\n{BARE}\n```"
MARKED = '<tool_call>\n{"name": "say",  "arguments":  {}}\n</tool_call>'
END = "<|im_end|>"
WRITTEN = [("json", BARE), ("json", FENCE), ("hermes", MARKED)]
"""Formats of models, and calls of which none is written as the template writes it."""


def ids(text: str) -> int:
    return len(TINY.encode(text, specials=True))


@each_of("words", ["", "So.\n"])
@each_of(("tool_format", "call"), WRITTEN)
@each_of("calls", [1, 3])
async def test_next_request_continues_behind_the_calls_that_were_run(
    tool_format: str, call: str, calls: int, words: str
) -> None:
    async with running(tool_format=tool_format, says="It is late.") as apis:
        said = words + call
        answer = await apis.ask(CHAT, {"messages": [ASK], "max_tokens": ids(said) * calls}, *[said] * calls)
        choice = answer["choices"][0]
        assert (choice["finish_reason"], len(answer["codec"]["tool_results"])) == ("length", calls)

        history = [ASK, choice["message"], AGAIN]
        second = await apis.ask(CHAT, {"messages": history}, "Well.")
        history += [second["choices"][0]["message"], ASK]
        await apis.ask(CHAT, {"messages": history}, "Done.")

        *_, before, after, last = apis.engine.prompts
        assert after.startswith(before + said + END)
        assert after.count("It is late.") == calls
        assert last.startswith(after + "Well.")


@pytest.mark.parametrize(
    "half", ['<tool_call>\n{"name": "say", "arg', '\n<tool_call>\n{"name": "say", "arguments": {"a']
)
async def test_half_a_call_behind_a_whole_one_is_left_out_and_the_result_is_kept(half: str) -> None:
    async with running(says="It is late.") as apis:
        said = MARKED + half
        answer = await apis.ask(CHAT, {"messages": [ASK], "max_tokens": ids(said)}, said + "rest")
        (result,) = answer["codec"]["tool_results"]
        assert result["text"] == "It is late."
        assert answer["codec"]["diagnostics"][0]["kind"] == "truncated"

        await apis.ask(CHAT, {"messages": [ASK, answer["choices"][0]["message"], AGAIN]}, "Well.")

        first, second = apis.engine.prompts
        assert second.startswith(first + MARKED + END)
        assert "It is late." in second


@pytest.mark.parametrize("words", ["", "So.\n"])
@pytest.mark.parametrize(("tool_format", "call"), WRITTEN)
async def test_loop_of_a_client_continues_behind_calls_in_another_format_than_the_templates(
    tool_format: str, call: str, words: str
) -> None:
    async with running(tool_format=tool_format) as apis:
        body = {"tools": [{"type": "function", "function": {"name": "say", "parameters": SCHEMA}}]}
        history = [ASK]
        for _ in range(4):
            answer = await apis.ask(CHAT, {**body, "messages": history}, words + call)
            message = answer["choices"][0]["message"]
            history += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "late"}]

        for before, after in zip(apis.engine.prompts, apis.engine.prompts[1:], strict=False):
            assert after.startswith(before + words + call + END)
