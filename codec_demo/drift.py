"""How far a re-tokenized history is from the ids that the model really wrote.

Compares two id lists that spell the same text. Drift is counted by alignment: how many of the true ids are outside the
equal blocks that difflib finds, and the first position that differs. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from leaf_sdk.vocab import TokenMap


@dataclass(frozen=True, slots=True)
class Drift:
    """`positions`: how many of the true ids came back as others. `first`: the first of them; None without drift."""

    positions: int
    first: int | None
    wrote: str = ""
    """The model's tokens around the first difference, split by `|`."""
    came_back: str = ""


def measure_drift(truth: Sequence[int], prompt: Sequence[int], token_map: TokenMap) -> Drift:
    """Compare `truth` (a turn's prompt and output) with the part of the next `prompt` that spells the same text."""
    again = _same_text(truth, prompt, token_map)
    blocks = SequenceMatcher(None, truth, again, autojunk=False).get_matching_blocks()
    positions = len(truth) - sum(block.size for block in blocks)
    if not positions and len(truth) == len(again):
        return Drift(0, None)
    first = next((n for n, (a, b) in enumerate(zip(truth, again, strict=False)) if a != b), min(len(truth), len(again)))
    return Drift(positions, first, _around(truth, first, token_map), _around(again, first, token_map))


def _same_text(truth: Sequence[int], prompt: Sequence[int], token_map: TokenMap) -> Sequence[int]:
    """The first ids of `prompt`, which spell as many bytes as `truth` does."""
    left = sum(len(token_map.token_bytes(i)) for i in truth)
    for n, token_id in enumerate(prompt):
        if left <= 0:
            return prompt[:n]
        left -= len(token_map.token_bytes(token_id))
    return prompt


def _around(ids: Sequence[int], at: int, token_map: TokenMap) -> str:
    return "|".join(token_map.token_bytes(i).decode("utf-8", "replace") for i in ids[at : at + 6])
