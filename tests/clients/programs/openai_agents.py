"""An agent of the OpenAI Agents SDK over Chat Completions. After a call of its tool the SDK goes back to "auto"."""

import asyncio
import json
import os
from typing import Annotated, Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

ran = 0


class Place(BaseModel):
    """Where."""

    city: Annotated[str, Field(json_schema_extra={"enum": ["Zürich", "Kraków", "São Paulo"]})]
    unit: Annotated[str, Field(json_schema_extra={"enum": ["°C", "°F"]})] = "°C"


@function_tool(strict_mode=False)
def forecast(place: Place, height: float) -> str:
    """The weather forecast of a place."""
    global ran
    ran += 1
    return f"{place.city}, {height} m: schön, 20 {place.unit}"


async def main(plan: list[dict[str, str]]) -> None:
    """Go through the plan."""
    set_tracing_disabled(True)  # traces would go to OpenAI
    async with AsyncOpenAI(max_retries=0, timeout=300) as client:
        model = OpenAIChatCompletionsModel("any", client)
        instructions = "You tell the weather. Be brief: “grüezi”."
        history: list[Any] = []
        for step in plan:
            settings = ModelSettings(tool_choice=step["first"], parallel_tool_calls=True, max_tokens=160)
            agent = Agent(
                name="weather", instructions=instructions, model=model, model_settings=settings, tools=[forecast]
            )
            result = await Runner.run(agent, [*history, {"role": "user", "content": step["question"]}])
            history = result.to_input_list()


asyncio.run(main(json.loads(os.environ["PLAN"])))
print(json.dumps({"ran": ran}))
