"""What a client may send to `POST /v1/completions`, checked and turned into the agent's terms.

OpenAI's older shape, whose prompt is a text or ids; what of it we can't honour is refused by name. Knows nothing of
HTTP. The fields that are not its own stand in `serve/generation/fields.py`.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from gateway.agent import CompletionOptions
from gateway.serve.generation.fields import HINTS, OTHER_GRAMMARS, GenerationFields, Ids
from leaf_sdk.vocab import TokenMap


class CompletionRequest(GenerationFields):
    """One request, checked."""

    prompt: str | Ids
    refused: ClassVar[Mapping[str, str]] = {
        "echo": "put the prompt before the text yourself",
        "suffix": "the model only goes on from a prompt",
        "logprobs": "chats tell them; leave it out here",
        **OTHER_GRAMMARS,
    }
    hints: ClassVar[frozenset[str]] = HINTS

    n: Literal[1] | None = None
    best_of: Literal[1] | None = None

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
