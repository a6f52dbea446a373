"""OpenAI's own client: a tool that the gateway runs, in a stream, and a tool that this program runs."""

import json
import os
import sys

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

MODEL = "any"  # ignored: a gateway has one engine
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo"]}},
            "required": ["city"],
        },
    },
}


def gateway_runs_the_tool(client: OpenAI) -> None:
    """Stream an answer for which the gateway calls one of its MCP servers."""
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What time is it in Tokyo?"}],
        tool_choice="required",  # a small model seldom calls a tool by itself
        temperature=0,
        stream=True,
    )
    for chunk in stream:
        # The gateway's own key: what a tool said, as soon as it is there.
        result = (getattr(chunk, "codec", None) or {}).get("tool_result")
        if result:
            print(f"[{result['name']} said: {result['text']} ({result['source']})]")
        for choice in chunk.choices:
            sys.stdout.write(choice.delta.content or "")
    print()


def this_program_runs_the_tool(client: OpenAI) -> None:
    """Ask with a tool of our own, run its calls, and ask again with the results."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "How is the weather in Paris?"}]
    answer = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        temperature=0,
    ).choices[0]
    # Look at finish_reason: calls that the gateway has run are listed as well, but then the answer is complete.
    while answer.finish_reason == "tool_calls":
        messages.append(answer.message.to_dict())
        for call in answer.message.tool_calls or []:
            if call.type == "function":
                city = json.loads(call.function.arguments)["city"]
                print(f"[this program was asked for the weather in {city}]")
                said = f"The weather in {city} is sunny, with 18 degrees."
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
        answer = client.chat.completions.create(
            model=MODEL, messages=messages, tools=[WEATHER], tool_choice="none", temperature=0
        ).choices[0]
    print(answer.message.content)


if __name__ == "__main__":
    # On loopback no key is required; elsewhere it is the gateway's token, or an API key.
    with OpenAI(
        base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8600/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
    ) as gateway:
        gateway_runs_the_tool(gateway)
        this_program_runs_the_tool(gateway)
