"""LiteLLM, which streams: its model at /v1, its tools from /mcp."""

import asyncio
import json
from typing import Any

import litellm
from litellm import experimental_mcp_client
from mcp import Client

FORECAST = {
    "type": "function",
    "function": {
        "name": "forecast",
        "description": "The weather forecast of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
AT: Any = {"model": "openai/any", "api_base": "http://127.0.0.1:8600/v1", "api_key": "none"}


async def main() -> None:
    """Ask once, and run what is called."""
    messages: list[Any] = [{"role": "user", "content": "How is the weather in Zürich, and what time is it there?"}]
    async with Client("http://127.0.0.1:8600/mcp") as client:
        tools = await experimental_mcp_client.load_mcp_tools(session=client.session, format="openai")
        while True:
            chunks = [
                chunk
                async for chunk in await litellm.acompletion(
                    **AT, messages=messages, tools=[FORECAST, *tools], stream=True
                )
            ]
            said = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
            messages.append(said)
            for call in said.tool_calls or ():
                if call.function.name == "forecast":
                    result = f"{json.loads(call.function.arguments)['city']}: fine, 20 °C"
                else:
                    told = await experimental_mcp_client.call_openai_tool(session=client.session, openai_tool=call)
                    result = told.content[0].text
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            if not said.tool_calls:
                print(said.content)
                return


asyncio.run(main())
