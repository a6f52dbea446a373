"""What a client may send to `POST /v1/completions`, checked and turned into the agent's terms.

OpenAI's older shape, whose prompt is a text or ids; fields that we can't honour are refused by name. Knows nothing of
HTTP. Fields that it shares with chats are in `serve/generation/fields.py`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator

from gateway.agent import CompletionOptions
from gateway.serve.generation.fields import HINTS, OTHER_GRAMMARS, GenerationFields, Ids
from leaf_sdk.vocab import TokenMap


def _one_of(prompt: Any) -> Any:
    """A list of one prompt is that prompt: some clients send nothing else."""
    kind = type(cast("object", prompt))
    several = cast("list[Any]", prompt) if kind is list else []
    is_one = len(several) == 1 and type(several[0]) in (str, list)
    return several[0] if is_one else prompt


class CompletionRequest(GenerationFields):
    """One request, checked."""

    prompt: Annotated[str | Ids, BeforeValidator(_one_of)]
    refused: ClassVar[Mapping[str, str]] = {
        "echo": "put the prompt in front of the text yourself",
        "suffix": "the model only continues a prompt",
        "logprobs": "only `/v1/chat/completions` returns them",
        **OTHER_GRAMMARS,
    }
    hints: ClassVar[frozenset[str]] = HINTS

    n: Literal[1] | None = None
    best_of: Literal[1] | None = None

    def options(self, token_map: TokenMap) -> CompletionOptions:
        """How to make the completion. Raises `RequestInvalid` for a bias that is none, or a form."""
        frames = self.stream_format != "json"
        return CompletionOptions(
            max_tokens=self.max_tokens,
            sampling=self.sampling_by(token_map),
            stops=self.stops,
            form=self.form,
            text=not frames,
            ids=frames or self.return_token_ids,
        )
