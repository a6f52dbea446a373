"""Ids of an answer with their log probabilities, as OpenAI's APIs write them. Pure."""

from collections.abc import Callable
from typing import Any, Final

from gateway.agent.events import TokenLogprob

Spell = Callable[[int], bytes]
"""Returns an id's bytes."""
_NEVER: Final = -9999.0
"""The log probability of what is impossible, as OpenAI writes it."""


def logprob_entry(token: TokenLogprob, spell: Spell) -> dict[str, Any]:
    """An id with its log probability, and the likeliest ids in its place."""
    return {
        **_entry(token.token_id, token.logprob, spell),
        "top_logprobs": [_entry(token_id, logprob, spell) for token_id, logprob in token.tops],
    }


def _entry(token_id: int, logprob: float | None, spell: Spell) -> dict[str, Any]:
    data = spell(token_id)
    # None: the engine gave no log probability, or the id was impossible.
    return {
        "token": data.decode("utf-8", "replace"),
        "logprob": _NEVER if logprob is None else logprob,
        "bytes": [*data],
    }
