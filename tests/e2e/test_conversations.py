"""Conversations that come back: an unmodified client that runs its own tool, on the real engine.

Each request after the first finds all that the engine holds, however the client writes its history down.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import openai
import pytest

from tests.e2e.conftest import ran

pytestmark = pytest.mark.engine

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"enum": [1, 2, 3], "default": 1}},
            "required": ["city"],
        },
    },
}
CHOICES = ("required", "none", "required", "required", "none", "required", "none", "none")


def as_it_came(message: dict[str, Any]) -> dict[str, Any]:
    return message


def compact(message: dict[str, Any]) -> dict[str, Any]:
    """As clients do that parse calls and write them anew, with the defaults of the schema, and leave text out."""
    calls = [_rewritten(call, {"days": 1}, (",", ":")) for call in message.get("tool_calls") or ()]
    return {**message, "content": message["content"] or None, **({"tool_calls": calls} if calls else {})}


def sorted_with_own_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {**_rewritten(call, {}, (", ", ": ")), "id": f"own_{call['id']}"} for call in message.get("tool_calls") or ()
    ]
    content = [{"type": "text", "text": message["content"].strip()}] if message["content"] else ""
    return {**message, "content": content, **({"tool_calls": calls} if calls else {})}


def _rewritten(call: Mapping[str, Any], defaults: Mapping[str, Any], separators: tuple[str, str]) -> dict[str, Any]:
    arguments = {**defaults, **json.loads(call["function"]["arguments"])}
    ordered = dict(sorted(arguments.items(), reverse=True))
    return {**call, "function": {**call["function"], "arguments": json.dumps(ordered, separators=separators)}}


@pytest.mark.parametrize("echo", [as_it_came, compact, sorted_with_own_ids])
def test_next_request_finds_all_that_the_engine_holds(
    chat: openai.OpenAI, echo: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"The weather in Bern, please ({echo.__name__})."}]
    turns: list[dict[str, Any]] = []
    ends: list[int] = []
    for number, choice in enumerate(CHOICES):
        answer = chat.chat.completions.create(
            model="any",
            messages=messages,
            tools=[TOOL],
            tool_choice=choice,
            max_tokens=600 if choice == "required" else 12,
            temperature=0.8,
            seed=number,
        )
        turns.append(answer.codec["turns"][0])
        last = answer.codec["turns"][-1]
        # The last id before a limit is sampled, but not processed any more.
        cut = answer.choices[0].finish_reason == "length"
        ends.append(last["cache_n"] + last["prompt_n"] + last["generated"] - cut)
        message = answer.choices[0].message.model_dump(exclude_none=True)
        messages.append(echo({"content": "", **message}))
        calls = messages[-1].get("tool_calls") or ()
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "Sunny, 20 °C"} for call in calls]
        if not calls:
            messages.append({"role": "user", "content": f"And tomorrow? ({number})"})

    assert [turn["held"] for turn in turns[1:]] == ends[:-1]
    # More where the engine has seen the same conversation before.
    assert all(turn["cache_n"] >= turn["held"] > 0 for turn in turns[1:])


def test_what_a_client_changes_is_named_by_the_answer_and_by_the_command(site: Any, chat: openai.OpenAI) -> None:
    def asked(day: str, *more: dict[str, Any]) -> Any:
        messages = [{"role": "system", "content": f"Today is {day}."}, {"role": "user", "content": "Hello."}, *more]
        return chat.chat.completions.create(model="any", messages=messages, tool_choice="none", max_tokens=8, seed=1)

    answer = asked("Monday").choices[0].message.model_dump(exclude_none=True)
    told = asked("Friday", answer, {"role": "user", "content": "And now?"}).codec["prompt"]
    page = ran("why", "--admin", site.admin)

    assert (told["reason"], told["message"], told["at"]) == ("client_changed", 0, len("Today is "))
    assert told["lost"] == told["held"] - told["reused"] > 0
    assert (told["was"], told["now"]) == ("Today is Monday.", "Today is Friday.")
    assert f"{told['lost']}" in page
    assert "message 0 changes at character 9" in page
    assert "Monday" not in page
