"""An agent of Google's ADK, its model at /v1 through LiteLLM and its tools from /mcp."""

import asyncio
import logging

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams
from google.genai.types import Content, Part


def forecast(city: str) -> str:
    """The weather forecast of a city."""
    return f"{city}: fine, 20 °C"


async def main() -> None:
    """Ask once."""
    logging.getLogger("google_adk").setLevel(logging.ERROR)  # it warns that there are no credentials for Google
    model = LiteLlm("openai/any", api_base="http://127.0.0.1:8600/v1", api_key="none")
    tools = McpToolset(connection_params=StreamableHTTPConnectionParams(url="http://127.0.0.1:8600/mcp"))
    agent = LlmAgent(name="weather", model=model, instruction="You tell the weather.", tools=[forecast, tools])
    runner = InMemoryRunner(agent)
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="me")
    question = Content(role="user", parts=[Part(text="How is the weather in Zürich, and what time is it there?")])
    async for event in runner.run_async(
        user_id="me",
        session_id=session.id,
        new_message=question,
        run_config=RunConfig(streaming_mode=StreamingMode.SSE),
    ):
        if event.is_final_response() and event.content:
            print("".join(part.text or "" for part in event.content.parts or []))
    await runner.close()


asyncio.run(main())
