"""An application with a tool of its own: OpenAI's client, in the loop that its documentation shows.

`python own_tool.py` asks two questions, in four requests, of the server that its environment names, and prints a line
of JSON for each request. It knows nothing of a gateway. A small model seldom calls a tool by itself, so the first
request of a question requires a call. llama-server lets a model write anything before a required call, and this model
never gets to the call: where CALL_BEGUN is set, the call's marker is written for it.
"""

import json
import os
from typing import Any

from openai import OpenAI

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["°C", "°F"]}},
            "required": ["city", "unit"],
        },
    },
}
QUESTIONS = ("How is the weather in Zürich?", "And in São Paulo?")


def get_weather(arguments: str) -> str:
    """Run the tool."""
    try:
        asked = json.loads(arguments)
        return f"Sunny, 20 {asked['unit']}, in {asked['city']}"
    except (ValueError, KeyError, TypeError):
        return "I can't read these arguments."


def main() -> None:
    """Hold the conversation."""
    begun: list[Any] = [{"role": "assistant", "content": "<tool_call>\n"}] if os.environ.get("CALL_BEGUN") else []
    with OpenAI(max_retries=0, timeout=300) as client:
        messages: list[Any] = [{"role": "system", "content": "You tell the weather. Be brief."}]
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            for choice in ("required", "none"):
                answer = client.chat.completions.create(
                    model="any",
                    messages=[*messages, *(begun if choice == "required" else ())],
                    tools=[TOOL],
                    tool_choice=choice,
                    parallel_tool_calls=False,
                    temperature=0,
                    max_tokens=96,
                )
                message = answer.choices[0].message
                messages.append(message)
                calls = [call for call in message.tool_calls or () if call.type == "function"]
                for call in calls:
                    said = get_weather(call.function.arguments)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
                wrote = [f"{call.function.name} {call.function.arguments}" for call in calls]
                told = {key: (answer.model_extra or {}).get(key) for key in ("codec", "timings")}
                print(json.dumps({"calls": wrote, "said": message.content or "", **told}))  # noqa: T201


if __name__ == "__main__":
    main()
