"""An agent of agno, which streams, its model at /v1 and its tools from /mcp."""

import asyncio

from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from agno.tools.mcp import MCPTools


def forecast(city: str) -> str:
    """The weather forecast of a city."""
    return f"{city}: fine, 20 °C"


async def main() -> None:
    """Ask once."""
    model = OpenAILike(id="any", base_url="http://127.0.0.1:8600/v1", api_key="none")
    async with MCPTools(url="http://127.0.0.1:8600/mcp", transport="streamable-http") as tools:
        agent = Agent(model=model, tools=[forecast, tools], telemetry=False)
        question = "How is the weather in Zürich, and what time is it there?"
        async for event in agent.arun(question, stream=True):
            print(getattr(event, "content", None) or "", end="")


asyncio.run(main())
