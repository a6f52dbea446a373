"""An agent of the OpenAI Agents SDK: its model is the gateway's `/v1`, its tools are those of the gateway's `/mcp`."""

import asyncio
import os

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.items import ToolCallOutputItem
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

GATEWAY = os.environ.get("GATEWAY_URL", "http://127.0.0.1:8600")
TOKEN = os.environ.get("GATEWAY_TOKEN", "none")  # not required on loopback


async def main() -> None:
    """Ask one question."""
    set_tracing_disabled(True)  # traces would go to OpenAI
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        AsyncOpenAI(base_url=f"{GATEWAY}/v1", api_key=TOKEN) as client,
        MCPServerStreamableHttp({"url": f"{GATEWAY}/mcp", "headers": headers}) as tools,
    ):
        agent = Agent(
            name="clock",
            instructions="You tell the time. Use the tool.",
            model=OpenAIChatCompletionsModel("any", client),
            # A small model seldom calls a tool by itself. After the first call the SDK goes back to "auto".
            model_settings=ModelSettings(tool_choice="required", temperature=0),
            mcp_servers=[tools],
        )
        result = await Runner.run(agent, "What time is it in Tokyo?")
    for item in result.new_items:
        if isinstance(item, ToolCallOutputItem):
            print(f"[the tool said: {item.output}]")
    print(result.final_output)


asyncio.run(main())
