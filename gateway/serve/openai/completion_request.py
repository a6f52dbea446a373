"""What a client may send to `POST /v1/completions`, checked and turned into the agent's terms.

OpenAI's older shape, whose prompt is a text or ids; what of it we can't honour is refused by name. Knows nothing of
HTTP. The fields that are not its own stand in `serve/generation/fields.py`.
"""

from typing import Annotated, Literal

from pydantic import Field, ValidationError

from gateway.agent import CompletionOptions
from gateway.serve.generation.fields import GenerationFields, invalid
from gateway.serve.generation.finite import must_hold_numbers


class CompletionRequest(GenerationFields):
    """One request, checked."""

    prompt: str | list[Annotated[int, Field(ge=0, lt=2**32)]]
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    logprobs: Literal[0] | None = None

    @classmethod
    def checked(cls, body: bytes) -> "CompletionRequest":
        """The request of an HTTP body. Raises `RequestInvalid` naming the first field at fault."""
        must_hold_numbers(body)
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from error

    @property
    def options(self) -> CompletionOptions:
        """How the completion is to be made."""
        frames = self.stream_format != "json"
        return CompletionOptions(
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            stops=self.stops,
            text=not frames,
            ids=frames or self.return_token_ids,
        )
