"""An agent of Strands, which streams, its model at /v1 and its tools from /mcp."""

from mcp.client.streamable_http import streamable_http_client
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient


@tool
def forecast(city: str) -> str:
    """The weather forecast of a city."""
    return f"{city}: fine, 20 °C"


model = OpenAIModel(client_args={"base_url": "http://127.0.0.1:8600/v1", "api_key": "none"}, model_id="any")
with MCPClient(lambda: streamable_http_client("http://127.0.0.1:8600/mcp")) as server:
    agent = Agent(model, tools=[forecast, *server.list_tools_sync()], callback_handler=None)
    print(agent("How is the weather in Zürich, and what time is it there?"))
