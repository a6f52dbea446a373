"""Finds out where a loaded model's cache can be cut, and whether a slot that is restored from a file can go on.

Servers report neither, and builds differ in the second: some restore a slot without its checkpoints, and then process
everything again (llama.cpp 25913, 26676, 28194). So a slot at rest is filled with a dozen tokens, cut and continued,
and what the engine had to process tells. It costs about 40 tokens at each start of an engine whose slots are ours.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from gateway.engine.interface import Rewind, SlotKeeper
from gateway.engine.slots.slot_directory import FileUnfit, SlotDirectory
from gateway.errors import EngineRefused
from gateway.observe.logs import get_logger

_HELD: Final = 12
"""Tokens that the probe holds; llama.cpp makes a checkpoint four before their end."""
_MORE: Final = 3
_CUT: Final = 5
"""Where it is cut: before the checkpoint."""
_LOST: Final = 8
"""Processed tokens from which on a restored file has not brought back what was in it."""

_LOOKS: Final = 20
_PAUSE: Final = 0.25
"""Seconds between two looks for a slot at rest."""

log = get_logger("engine")


@dataclass(frozen=True, slots=True)
class Findings:
    """What the probe has found."""

    rewind: Rewind = "anywhere"
    fault: str | None = None
    """Why slots can't be kept in files; None: nothing is known against it."""


async def find_rewind(
    keeper: SlotKeeper, slots: range, tokens: Sequence[int], directory: SlotDirectory | None
) -> Findings:
    """Probe a slot that is at rest; afterwards it holds nothing of use.

    Args:
        keeper: the engine.
        slots: the slots that are ours.
        tokens: any ordinary tokens, at least three different ones.
        directory: where slots are kept in files; None: they are not.

    Raises `EngineUnavailable`. If no slot is at rest, or the engine refuses, the cache counts as one that can be cut.
    """
    slot = await _resting(keeper, slots)
    if slot is None:
        return Findings(fault="none of the engine's slots was at rest when it was to be tried")
    held, other = (list(tokens) * _HELD)[:_HELD], list(tokens)[::-1]
    try:
        await keeper.fill_slot(slot, held)
        grown = await keeper.fill_slot(slot, [*held, *other[:_MORE]])
        cut = await keeper.fill_slot(slot, [*held[:_CUT], _another(tokens, held[_CUT])])
        rewind: Rewind = "anywhere" if cut.ids <= 1 else "checkpoints" if grown.ids <= _MORE else "window"
        return Findings(rewind, None if directory is None else await _file_fault(keeper, slot, held, tokens, directory))
    except EngineRefused as error:
        log.info("it was not found out where the engine's cache can be cut", reason=error.message)
        return Findings()
    finally:
        # A server that keeps no slots in files refuses this too; the next prompt then takes what is there.
        with suppress(EngineRefused):
            await keeper.erase_slot(slot)


async def _resting(keeper: SlotKeeper, slots: range) -> int | None:
    """A slot that is at rest, or comes to rest soon: a gateway that ended may have left them at work."""
    for _ in range(_LOOKS):
        for number in slots:
            if await keeper.is_at_rest(number):
                return number
        await anyio.sleep(_PAUSE)
    return None


async def _file_fault(
    keeper: SlotKeeper, slot: int, held: list[int], tokens: Sequence[int], directory: SlotDirectory
) -> str | None:
    name = directory.new_name()
    try:
        await keeper.fill_slot(slot, held)
        saved = await keeper.save_slot(slot, name)
        directory.close_to_others(name)
        await keeper.erase_slot(slot)
        restored = await keeper.restore_slot(slot, name)
        # The last token differs, so a cache that can't be cut needs the checkpoint before it.
        after = await keeper.fill_slot(slot, [*held[:-1], _another(tokens, held[-1])])
    except EngineRefused as error:
        return error.message
    except FileUnfit as unfit:
        return f"the file of a slot that the engine reports as saved can't be used ({unfit.fault})"
    finally:
        directory.remove(name)
    if (restored.ids, restored.size) != (saved.ids, saved.size):
        return f"of {saved.ids} saved tokens in {saved.size} bytes it restores {restored.ids} in {restored.size}"
    if after.ids >= _LOST:
        return f"after it has restored a slot of {saved.ids} tokens, it processes {after.ids} of them again"
    return None


def _another(tokens: Sequence[int], token: int) -> int:
    return next(each for each in tokens if each != token)
