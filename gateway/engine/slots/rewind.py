"""How much of a cache a prompt can reuse, where the cache can only go back to checkpoints.

A dense model's cache can be cut behind any token. One with sliding windows or recurrent layers can only be continued at
its end, or taken back to a checkpoint, of which llama.cpp makes two for each prompt that it processes
(`tools/server/server-context.cpp`): everything behind the checkpoint is processed again. Pure; positions and counts are
tokens. A position that is assumed too early costs a decision; what the engine reports corrects it at the next prompt.
"""

from collections.abc import Sequence
from typing import Final

from gateway.engine.embedded.child_process import KEPT_CHECKPOINTS
from gateway.engine.left_behind import shared_prefix

Checkpoints = tuple[int, ...] | None
"""Where a cache can go back to, in order; None: anywhere."""

_END: Final = 4
"""llama.cpp makes a checkpoint so many tokens before a prompt's end,"""
_BATCH: Final = 512 + _END
"""and another so many before it, or where the reused part ended if that is nearer."""


def reused(ids: Sequence[int], checkpoints: Checkpoints, prompt: Sequence[int]) -> int:
    """How many tokens at the beginning of a prompt need not be processed by a cache that holds these ids."""
    shared = shared_prefix(ids, prompt)
    if checkpoints is None or shared == len(ids):
        return shared
    return max((place for place in checkpoints if place <= shared), default=0)


def after_prompt(checkpoints: Checkpoints, prompt: int, cached: int | None) -> Checkpoints:
    """The checkpoints of a slot that has processed a prompt.

    Args:
        checkpoints: those that it had before.
        prompt: tokens of the prompt.
        cached: how many of them were reused, as the engine reports; None: it did not.
    """
    if checkpoints is None:
        return None
    if cached is None:
        return tuple(place for place in (prompt - _END,) if place > 0)
    # Those behind the place to which it went back are gone.
    places = {place for place in checkpoints if place <= cached}
    places |= {place for place in (prompt - _BATCH, prompt - _END) if place > cached}
    if cached > 0 and prompt - cached <= _BATCH:
        places.add(cached)
    return tuple(sorted(places)[-KEPT_CHECKPOINTS:])
