"""An agent of the OpenAI Agents SDK, over the Responses API: its own choice where nothing is said."""

import asyncio
import json
import os
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled

ran = 0


@function_tool
def forecast(city: str, days: int) -> str:
    """The weather forecast of a city."""
    global ran
    ran += 1
    return f"{city}: schön, 20 °C, {days} days"


async def main(questions: list[str]) -> list[str]:
    """Ask one question after another; give the answers."""
    set_tracing_disabled(True)  # traces would go to OpenAI
    agent = Agent(name="weather", instructions="You tell the weather.", model="any", tools=[forecast])
    history: list[Any] = []
    answers: list[str] = []
    for question in questions:
        result = await Runner.run(agent, [*history, {"role": "user", "content": question}])
        history = result.to_input_list()
        answers.append(result.final_output)
    return answers


answers = asyncio.run(main(json.loads(os.environ["QUESTIONS"])))
print(json.dumps({"ran": ran, "answers": answers}))
