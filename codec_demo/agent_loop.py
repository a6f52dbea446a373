"""An agent that runs its own tools, with OpenAI's client, unmodified, in the loop that its documentation shows.

It holds the same conversation with each of several servers and takes turns in which of them it asks first. It knows
nothing of a gateway. A model of 135M parameters calls tools without sense, or not at all, so the script decides what
the next result is; where the model made no call, the result goes to it as a user's message.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, cast

from openai import APIError, AsyncOpenAI

from codec_demo.agent_tools import definitions, search_result
from gateway.errors import EngineUnavailable

_SYSTEM: Final = "You are a coding agent. You work on the project in /home/user/shop with your tools. Be brief."
_QUESTIONS: Final = {
    "agent": "Two tests of the shop fail since yesterday. Find out why, and mend it.",
    "sub-agent": "Where is the limit of load_item set? Answer in one sentence.",
}
_SUB_ANSWER: Final = "The limit of load_item is set in src/store/limits.py, line 40, and is read once, at the start."
_MAX_TOKENS: Final = 64
_TIMEOUT: Final = 600
"""Seconds that a request may take: a loaded machine may process 10 prompt tokens a second."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request: whose it is, and the tool result that follows its answer (lines of a search, a text, or none)."""

    who: str
    result: int | str | None = None


STEPS: Final = (
    Step("agent", 11),
    Step("agent", 13),
    Step("agent", _SUB_ANSWER),
    Step("sub-agent", 11),
    Step("sub-agent"),
    Step("agent", 24),
    Step("agent", 11),
    Step("agent"),
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that speaks OpenAI's API."""

    name: str
    url: str
    key: str = "none"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and the answer to it; `calls`: the names of the tools that the agent ran."""

    number: int
    who: str
    server: str
    required: bool
    """Whether the agent required a call."""
    calls: tuple[str, ...]
    answer: dict[str, Any]


@dataclass(slots=True)
class _Side:
    server: Server
    client: AsyncOpenAI
    messages: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {
            who: [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": question}]
            for who, question in _QUESTIONS.items()
        }
    )


async def hold_conversations(
    servers: Sequence[Server], steps: Sequence[Step] = STEPS, tools: int = 20
) -> AsyncIterator[Exchange]:
    """Ask every server the requests of all steps, and yield each exchange. Raises `EngineUnavailable`."""
    async with AsyncExitStack() as clients:
        sides: list[_Side] = []
        for server in servers:
            client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0, timeout=_TIMEOUT)
            sides.append(_Side(server, await clients.enter_async_context(client)))
        for number, step in enumerate(steps, 1):
            for side in sides if number % 2 else reversed(sides):
                yield await _ask(side, number, step, definitions(tools))


async def _ask(side: _Side, number: int, step: Step, tools: list[dict[str, Any]]) -> Exchange:
    messages = side.messages[step.who]
    try:
        answer = await side.client.chat.completions.create(
            model="any",
            messages=cast("Any", messages),
            tools=cast("Any", tools),
            tool_choice="none" if step.result is None else "required",
            parallel_tool_calls=False,
            temperature=0,
            max_tokens=_MAX_TOKENS,
        )
    except APIError as error:
        words = f"{side.server.name} answered request {number} of the demo's agent with an error: {error.message}"
        raise EngineUnavailable(words) from error
    message = answer.choices[0].message
    made = [_echo(call.id, call.function) for call in message.tool_calls or () if call.type == "function"]
    calls = [call for call in made if call is not None][:1]
    messages.append({"role": "assistant", "content": message.content or ""} | ({"tool_calls": calls} if calls else {}))
    if step.result is not None:
        text = step.result if isinstance(step.result, str) else search_result(step.result, number)
        where = {"role": "tool", "tool_call_id": calls[0]["id"]} if calls else {"role": "user"}
        messages.append({**where, "content": text})
    names = tuple(call["function"]["name"] for call in calls)
    return Exchange(number, step.who, side.server.name, step.result is not None, names, answer.model_dump())


def _echo(call_id: str, function: Any) -> dict[str, Any] | None:
    """A call as it goes back to the server: its arguments parsed and written again, as most frameworks do."""
    try:
        arguments = json.dumps(json.loads(function.arguments))
    except ValueError:
        return None
    return {"id": call_id, "type": "function", "function": {"name": function.name, "arguments": arguments}}
