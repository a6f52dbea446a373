"""An agent of LlamaIndex, which streams, its model at /v1 and its tools from /mcp."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


def forecast(city: str) -> str:
    """The weather forecast of a city."""
    return f"{city}: fine, 20 °C"


async def main() -> None:
    """Ask once."""
    llm = OpenAILike(
        "any", api_base="http://127.0.0.1:8600/v1", api_key="none", is_chat_model=True, is_function_calling_model=True
    )
    client = BasicMCPClient("http://127.0.0.1:8600/mcp")
    tools = await McpToolSpec(client).to_tool_list_async()
    agent = FunctionAgent(tools=[forecast, *tools], llm=llm)
    print(await agent.run("How is the weather in Zürich, and what time is it there?"))


asyncio.run(main())
