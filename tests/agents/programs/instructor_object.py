"""instructor, its model at /v1: an answer as an object, streamed, by a call that the model must make."""

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    """What is said of a city."""

    city: str
    degrees: int


client = instructor.from_openai(OpenAI(base_url="http://127.0.0.1:8600/v1", api_key="none"))
question = {"role": "user", "content": "The weather in Zürich?"}
*_, last = client.chat.completions.create_partial(model="any", messages=[question], response_model=Weather)
print(last)
