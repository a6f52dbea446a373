"""A ReAct agent of DSPy, its model at /v1 and its tools from /mcp; it writes its calls as text of its own."""

import asyncio

import dspy
from mcp import Client


def forecast(city: str) -> str:
    """The weather forecast of a city."""
    return f"{city}: fine, 20 °C"


async def main() -> None:
    """Ask once."""
    dspy.configure(lm=dspy.LM("openai/any", api_base="http://127.0.0.1:8600/v1", api_key="none"))
    async with Client("http://127.0.0.1:8600/mcp") as client:
        tools = [dspy.Tool.from_mcp_tool(client.session, tool) for tool in (await client.list_tools()).tools]
        agent = dspy.ReAct("question -> answer", tools=[forecast, *tools])
        told = await agent.acall(question="How is the weather in Zürich, and what time is it there?")
        print(told.answer)


asyncio.run(main())
