"""An agent of smolagents, its model at /v1 and its tools from /mcp."""

from smolagents import MCPClient, OpenAIModel, ToolCallingAgent, tool


@tool
def forecast(city: str) -> str:
    """The weather forecast of a city.

    Args:
        city: Its name.
    """
    return f"{city}: fine, 20 °C"


model = OpenAIModel("any", api_base="http://127.0.0.1:8600/v1", api_key="none")
with MCPClient({"url": "http://127.0.0.1:8600/mcp", "transport": "streamable-http"}) as tools:
    agent = ToolCallingAgent([forecast, *tools], model, stream_outputs=True)
    print(agent.run("How is the weather in Zürich, and what time is it there?"))
