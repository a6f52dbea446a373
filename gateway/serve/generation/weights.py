"""Ids of an answer with their probabilities, as OpenAI's APIs write them. Pure."""

from collections.abc import Callable
from typing import Any, Final

from gateway.agent.events import TokenLogprob

Spell = Callable[[int], bytes]
"""Gives an id's bytes."""
_NEVER: Final = -9999.0
"""The logarithm of no probability, as OpenAI writes it."""


def weighed(token: TokenLogprob, spell: Spell) -> dict[str, Any]:
    """An id with its probability, and those that were likeliest in its place."""
    return {
        **_weight(token.token_id, token.logprob, spell),
        "top_logprobs": [_weight(token_id, logprob, spell) for token_id, logprob in token.tops],
    }


def _weight(token_id: int, logprob: float | None, spell: Spell) -> dict[str, Any]:
    data = spell(token_id)
    # What was not told, or was impossible, is written as OpenAI does.
    return {
        "token": data.decode("utf-8", "replace"),
        "logprob": _NEVER if logprob is None else logprob,
        "bytes": [*data],
    }
