"""An agent of AutoGen, which streams, its model at /v1 and its tools from /mcp."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import StreamableHttpServerParams, mcp_server_tools

INFO = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True)


async def forecast(city: str) -> str:
    """The weather forecast of a city."""
    return f"{city}: fine, 20 °C"


async def main() -> None:
    """Ask once."""
    model = OpenAIChatCompletionClient(
        model="any", base_url="http://127.0.0.1:8600/v1", api_key="none", model_info=INFO
    )
    tools = await mcp_server_tools(StreamableHttpServerParams(url="http://127.0.0.1:8600/mcp"))
    agent = AssistantAgent("weather", model, tools=[forecast, *tools], model_client_stream=True, max_tool_iterations=5)
    result = await agent.run(task="How is the weather in Zürich, and what time is it there?")
    print(result.messages[-1].to_text())


asyncio.run(main())
