"""An agent of pydantic-ai over the Chat API; its history is `all_messages()` of the run before."""

import json
import os
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelSettings, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.openai import OpenAIChatModel

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


@dataclass
class Choosing(AbstractCapability[Any]):
    """Says what each step of a run may call: names beyond the agent's own tools go as a field of the request."""

    step: dict[str, str]

    def get_model_settings(self) -> Any:
        """Give the settings of a step."""

        def settings(context: RunContext[Any]) -> ModelSettings:
            word = self.step["first" if context.run_step <= 1 else "then"]
            named = word not in ("required", "none", "auto")
            chosen: Any = {"type": "function", "function": {"name": word}} if named else word
            return ModelSettings(extra_body={"tool_choice": chosen})

        return settings


model = OpenAIChatModel("any")
history: list[Any] = []
for step in json.loads(os.environ["PLAN"]):
    agent = Agent(
        model,
        instructions="You tell the weather. Be brief: “grüezi”.",
        tools=[forecast],
        capabilities=[Choosing(step)],
        model_settings=ModelSettings(parallel_tool_calls=True, max_tokens=160, timeout=300),
    )
    history = agent.run_sync(step["question"], message_history=history).all_messages()

print(json.dumps({"ran": ran}))
