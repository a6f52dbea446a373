"""What a client may send to `POST /v1/completions`, checked and turned into the agent's terms.

OpenAI's older shape, whose prompt is a text or ids; what of it we can't honour is refused by name. Knows nothing of
HTTP. The fields that are not its own stand in `serve/generation/fields.py`.
"""

from typing import Annotated, Literal

from pydantic import Field

from gateway.agent import CompletionOptions
from gateway.serve.generation.fields import GenerationFields
from leaf_sdk.vocab import TokenMap


class CompletionRequest(GenerationFields):
    """One request, checked."""

    prompt: str | list[Annotated[int, Field(ge=0, lt=2**32)]]
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    logprobs: Literal[0] | None = None

    def options(self, token_map: TokenMap) -> CompletionOptions:
        """How the completion is to be made. Raises `RequestInvalid` for what the map has no id of."""
        frames = self.stream_format != "json"
        return CompletionOptions(
            max_tokens=self.max_tokens,
            sampling=self.sampling_by(token_map),
            stops=self.stops,
            text=not frames,
            ids=frames or self.return_token_ids,
        )
