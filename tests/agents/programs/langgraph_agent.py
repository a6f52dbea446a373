"""An agent of LangChain on LangGraph, which streams, over the API that `API` names."""

import json
import os
from typing import Any

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

ran = 0


def forecast(city: str, days: int) -> str:
    """The weather forecast of a city."""
    global ran
    ran += 1
    return f"{city}: schön, 20 °C, {days} days"


models: dict[str, Any] = {
    "responses": lambda: ChatOpenAI(model="any", use_responses_api=True, streaming=True),
    "messages": lambda: ChatAnthropic(model="any", streaming=True),
}
agent = create_agent(models[os.environ["API"]](), [forecast], system_prompt="You tell the weather.")
messages: list[Any] = []
answers: list[str] = []
for question in json.loads(os.environ["QUESTIONS"]):
    messages = agent.invoke({"messages": [*messages, {"role": "user", "content": question}]})["messages"]
    answers.append(messages[-1].text)

print(json.dumps({"ran": ran, "answers": answers}))
