"""An agent of LangChain (`create_agent`) over the Chat API, which streams; its history stays in its own messages."""

import json
import os
from collections.abc import Callable
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse, wrap_model_call
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

ran = 0


class Place(BaseModel):
    """Where."""

    city: Annotated[str, Field(json_schema_extra={"enum": ["Zürich", "Kraków", "São Paulo"]})]
    unit: Annotated[str, Field(json_schema_extra={"enum": ["°C", "°F"]})] = "°C"


def forecast(place: Place, height: float) -> str:
    """The weather forecast of a place."""
    global ran
    ran += 1
    return f"{place.city}, {height} m: schön, 20 {place.unit}"


def run(plan: list[dict[str, str]]) -> None:
    """Go through the plan."""
    step = plan[0]

    @wrap_model_call
    def choose(request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]) -> Any:
        word = step["then"] if request.messages[-1].type == "tool" else step["first"]
        named = word not in ("required", "none", "auto")
        chosen: Any = {"type": "function", "function": {"name": word}} if named else word
        return handler(request.override(tool_choice=chosen, model_settings={"parallel_tool_calls": True}))

    model = ChatOpenAI(model="any", max_completion_tokens=160, max_retries=0, timeout=300, streaming=True)
    agent = create_agent(
        model, [forecast], system_prompt="You tell the weather. Be brief: “grüezi”.", middleware=[choose]
    )
    messages: list[Any] = []
    for step in plan:
        messages = agent.invoke({"messages": [*messages, {"role": "user", "content": step["question"]}]})["messages"]


run(json.loads(os.environ["PLAN"]))
print(json.dumps({"ran": ran}))
