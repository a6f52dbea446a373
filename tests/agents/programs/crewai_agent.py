"""An agent of CrewAI, its model at /v1 and its tools from /mcp."""

from crewai import LLM, Agent
from crewai.tools import tool
from crewai_tools import MCPServerAdapter


@tool("forecast")
def forecast(city: str) -> str:
    """The weather forecast of a city."""
    return f"{city}: fine, 20 °C"


llm = LLM("openai/any", base_url="http://127.0.0.1:8600/v1", api_key="none")
with MCPServerAdapter({"url": "http://127.0.0.1:8600/mcp", "transport": "streamable-http"}) as tools:
    agent = Agent(role="weather", goal="Tell the weather.", backstory="-", llm=llm, tools=[forecast, *tools])
    print(agent.kickoff("How is the weather in Zürich, and what time is it there?").raw)
