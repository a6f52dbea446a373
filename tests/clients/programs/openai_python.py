"""OpenAI's own client, in the loop that its documentation shows: answers go back as the client holds them."""

import json
import os
import sys
from typing import Any

from openai import OpenAI

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "forecast",
        "description": "The weather forecast of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "enum": ["Zürich", "Kraków", "São Paulo"]},
                        "unit": {"type": "string", "enum": ["°C", "°F"], "default": "°C"},
                    },
                    "required": ["city"],
                },
                "height": {"type": "number", "description": "Metres above the sea."},
            },
            "required": ["place", "height"],
        },
    },
}
ran = 0


def forecast(place: dict[str, str], height: float) -> str:
    """The tool of this client."""
    global ran
    ran += 1
    return f"{place['city']}, {height} m: schön, 20 {place.get('unit', '°C')}"


def choice(word: str) -> Any:
    """A word of the plan as the API has it."""
    return word if word in ("required", "none", "auto") else {"type": "function", "function": {"name": word}}


with OpenAI(max_retries=0, timeout=300) as client:
    messages: list[Any] = [{"role": "system", "content": "You tell the weather. Be brief: “grüezi”."}]
    for step in json.loads(os.environ["PLAN"]):
        messages.append({"role": "user", "content": step["question"]})
        for word in (step["first"], step["then"]):
            answer = client.chat.completions.create(
                model="any",
                messages=messages,
                tools=[TOOL],
                tool_choice=choice(word),
                parallel_tool_calls=True,
                max_tokens=160,
            )
            message = answer.choices[0].message
            messages.append(message)
            for call in message.tool_calls or ():
                if call.type != "function" or call.function.name != "forecast":
                    sys.exit(f"no tool of this client: {call}")
                try:
                    said = forecast(**json.loads(call.function.arguments))
                except ValueError as error:
                    said = f"The arguments are no JSON: {error}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
            if not message.tool_calls:
                break

print(json.dumps({"ran": ran}))
