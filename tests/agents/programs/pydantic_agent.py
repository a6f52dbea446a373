"""An agent of pydantic-ai, over the API that `API` names."""

import json
import os
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel

ran = 0
models: dict[str, Any] = {"responses": OpenAIResponsesModel, "messages": AnthropicModel}
agent = Agent(models[os.environ["API"]]("any"), instructions="You tell the weather.")


@agent.tool_plain
def forecast(city: str, days: int) -> str:
    """The weather forecast of a city."""
    global ran
    ran += 1
    return f"{city}: schön, 20 °C, {days} days"


history: list[Any] = []
answers: list[str] = []
for question in json.loads(os.environ["QUESTIONS"]):
    result = agent.run_sync(question, message_history=history)
    history = result.all_messages()
    answers.append(result.output)

print(json.dumps({"ran": ran, "answers": answers}))
