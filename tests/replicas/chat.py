"""A chat of ten requests with a tool that its client runs, each request to another replica than the one before.

Without a store each replica knows only what it answered itself, reads the rest from its text, and says so: `held` is
less than what the conversation had come to, or there is a `reason`. With one (`--shared`) it is all of that, exactly;
each engine has its own cache still, so a part is processed again (`replica_moved`).
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai

from tests.replicas.found import Found, Options
from tests.replicas.site import TOKEN, Site, site

REQUESTS = 10
_TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
        },
    },
}


def scene(folder: Path, options: Options) -> Found:
    """Hold it."""
    engine = 'kind = "embedded"\ncontext = 4096\nslots = 1\nthreads = 1'
    with site(folder, 3, engine=engine, shared=options.shared, servers={}) as made:
        return _held(made, shared=options.shared)


def _held(made: Site, *, shared: bool) -> Found:
    found = Found()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Bern?"}]
    rows: list[dict[str, Any]] = []
    for number in range(REQUESTS):
        replica = made.replicas[number % len(made.replicas)]
        called = number % 2 == 0
        with openai.OpenAI(base_url=f"{replica.url}/v1", api_key=TOKEN, max_retries=0, timeout=120) as api:
            answer: Any = api.chat.completions.create(
                model="any",
                messages=messages,
                tools=[_TOOL],
                tool_choice="required" if called else "none",
                max_tokens=40,
                temperature=0.0,
            )
        message = answer.choices[0].message
        calls = message.tool_calls or []
        if called != bool(calls) or not all(_is_whole(each) for each in calls):
            found.faults.append(f"request {number + 1} was answered with {message.model_dump_json()[:200]}")
        last = answer.codec["turns"][-1]
        # The last id before a limit is sampled, but not processed any more.
        cut = answer.choices[0].finish_reason == "length"
        end = last["cache_n"] + last["prompt_n"] + last["generated"] - cut
        rows.append({**(answer.codec.get("prompt") or {}), "end": end})
        messages.append(message.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": each.id, "content": "It rains, 9 degrees."} for each in calls]
        if not calls:
            messages.append({"role": "user", "content": f"And what is it like on day {number}?"})
    for number, (before, told) in enumerate(pairwise(rows), start=2):
        found.lines.append(f"  request {number}: {json.dumps(told)}")
        if shared:
            # All ids are known; what another engine has in its cache is another matter, which the reason says.
            fine = told["held"] == before["end"] and told.get("reason", "replica_moved") == "replica_moved"
        else:
            # Of what others answered this replica held nothing: either it says that it knows nothing, or held is less.
            fine = told["held"] < before["end"] or "reason" in told
        if not fine:
            found.faults.append(f"request {number} is not told as it is: {told}, behind {before['end']} ids")
    found.told["prompts"] = rows
    return found


def _is_whole(call: Any) -> bool:
    try:
        return call.function.name == "weather" and isinstance(json.loads(call.function.arguments)["city"], str)
    except (ValueError, KeyError):
        return False
