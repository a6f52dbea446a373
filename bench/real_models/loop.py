"""An agent's loop of eight requests, whose client runs the tools: cached tokens that are lost, and time to first token.

Each server gets the history that its own answers make, as a client keeps it: the assistant's message as it came, then
the tools' results. All requests but the last must call a tool. Where a server shows no call, the client asks for the
next step in words.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import httpx2

from bench.real_models.tasks import TOOLS

REQUESTS: Final = 8
_QUESTION: Final = (
    "Plan my trip, one step at a time: look up the weather in Oslo, Zürich and 東京, the time in each city, read "
    "trip.txt, and write what you found to plan.txt."
)
_RESULTS: Final = {
    "get_weather": '{"sky": "cloudy", "degrees": -3, "wind": "12 km/h", "note": "Schneefall möglich"}',
    "get_time": '{"time": "2026-11-29T09:41:07+01:00"}',
    "read_file": "Day 1: museum — tickets are in the blue folder.\nDay 2: 温泉, bring towels.",
}
_OTHER: Final = "done"
_GO_ON: Final = {"role": "user", "content": "Go on with the next step."}
_TITLES: Final = ("requests", "with a call", "prompt tokens", "processed", "lost", "median time to first token")


def run(client: httpx2.Client) -> list[dict[str, Any]]:
    """Run the loop at one server; return a row for each request."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": _QUESTION}]
    rows: list[dict[str, Any]] = []
    held = 0
    for number in range(REQUESTS):
        choice = "required" if number < REQUESTS - 1 else "none"
        answer = _asked(client, messages, choice)
        usage: dict[str, Any] = answer["usage"]
        calls: list[dict[str, Any]] = answer["message"].get("tool_calls") or []
        cached: int = usage["prompt_tokens_details"]["cached_tokens"]
        row = {
            "prompt": usage["prompt_tokens"],
            "cached": cached,
            "lost": max(0, held - cached),
            "first_token": round(answer["first_token"], 3),
            "calls": len(calls),
        }
        print(json.dumps(row), flush=True)
        rows.append(row)
        # The last token of an answer is sampled, but not processed.
        held = usage["prompt_tokens"] + usage["completion_tokens"] - 1
        messages += [answer["message"], *(_result(call) for call in calls)]
        messages += [] if calls else [_GO_ON]
    return rows


def _result(call: Mapping[str, Any]) -> dict[str, Any]:
    content = _RESULTS.get(call["function"]["name"], _OTHER)
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def _asked(client: httpx2.Client, messages: Sequence[Mapping[str, Any]], choice: str) -> dict[str, Any]:
    """The answer as a client puts it together from its stream."""
    body = {
        "model": "any",
        "messages": messages,
        "tools": [*TOOLS.values()],
        "tool_choice": choice,
        "temperature": 0,
        "max_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    begun, first = time.perf_counter(), None
    content, calls, usage = "", dict[int, dict[str, Any]](), dict[str, Any]()
    # llama.cpp's server ends kept connections at times of its own.
    with client.stream("POST", "/v1/chat/completions", json=body, headers={"connection": "close"}) as answer:
        for chunk in _chunks(answer):
            usage = chunk.get("usage") or usage
            for delta in (each["delta"] for each in chunk.get("choices", ())):
                if first is None and (delta.get("content") or delta.get("tool_calls")):
                    first = time.perf_counter() - begun
                content += delta.get("content") or ""
                for part in delta.get("tool_calls") or ():
                    _add(calls, part)
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [*calls.values()]
    return {"message": message, "usage": usage, "first_token": first or time.perf_counter() - begun}


def _chunks(answer: httpx2.Response) -> Iterator[dict[str, Any]]:
    if answer.status_code != 200:
        answer.read()
        raise ValueError(f"a request of the loop was refused: {answer.text[:300]}")
    for line in answer.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])


def _add(calls: dict[int, dict[str, Any]], part: Mapping[str, Any]) -> None:
    call = calls.setdefault(part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call["id"] = call["id"] or part.get("id") or ""
    function: dict[str, str | None] = part.get("function") or {}
    for key, text in function.items():
        call["function"][key] += text or ""


def table(models: Mapping[str, Any]) -> str:
    """The loops of all models as a table in Markdown; the first request, which finds nothing, is left out."""
    lines = [f"| model | server | {' | '.join(_TITLES)} |", "|---" * (len(_TITLES) + 2) + "|"]
    for name, found in models.items():
        for side, rows in found.get("loop", {}).items():
            later = rows[1:]
            seconds = sorted(row["first_token"] for row in later)
            cells = (
                *(len(later), sum(row["calls"] > 0 for row in later), sum(row["prompt"] for row in later)),
                *(sum(row["prompt"] - row["cached"] for row in later), sum(row["lost"] for row in later)),
                f"{seconds[len(seconds) // 2]:.2f} s",
            )
            lines.append(
                f"| {name} | {side} | " + " | ".join(f"{c:,}" if isinstance(c, int) else c for c in cells) + " |"
            )
    return "\n".join(lines) + "\n"
