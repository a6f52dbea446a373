"""The slots of each engine that comes up, and the slot files of a gateway across restarts of its engine.

Opens the directory of the files, keeps what is known about them, and makes the `SlotTable` of each engine. What is done
with a file is decided in `swap_plan.py` and carried out in `slot_save_restore.py`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.embedded.engine_process import embedded_model, slot_files_limit
from gateway.engine.interface import EngineFacts, Rewind, SlotKeeper, SlotMover
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.slot_directory import FileUnfit, SlotDirectory, slot_directory
from gateway.engine.slots.slot_save_restore import Swapper
from gateway.engine.slots.swap_plan import Paging
from gateway.engine.wire.adapter import salt_of
from gateway.errors import EngineRefused, EngineUnavailable
from gateway.observe.backend_metrics import SlotFileMetrics
from gateway.observe.logs import get_logger

# Finds out where a loaded model's cache can be cut, and whether a slot that is restored from a file can go on.
#
# Servers report neither, and builds differ in the second: some restore a slot without its checkpoints, and then process
# everything again (llama.cpp 25913, 26676, 28194). So a slot at rest is filled with a dozen tokens, cut and continued,
# and what the engine had to process tells. It costs about 40 tokens at each start of an engine whose slots are ours.

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


_KV_TYPES: Final = "f16/f16"
"""The types of keys and values: llama.cpp's defaults, which we don't change."""

_NOT_KEPT: Final = "the KV caches of idle conversations are not kept in files"


@dataclass(frozen=True, slots=True)
class SlotFiles:
    """The slot files of one gateway."""

    model: Path | None
    """The model file that the engine has loaded; None for somebody else's server, whose files last as long as its
    process."""
    directory: SlotDirectory
    paging: Paging
    metrics: SlotFileMetrics

    def swapper(self, engine: SlotMover, rewind: Rewind) -> Swapper:
        """The swapper of an engine that has just been started. It swaps nothing until `adopt` tells it which engine."""
        return Swapper(engine, self.directory, self.paging, self.metrics, rewind)

    async def adopt(self, swapper: Swapper, facts: EngineFacts) -> None:
        """Tell a swapper which engine it serves."""
        if self.model is None and facts.start_marker is None:
            log.warning(_NOT_KEPT, reason="the engine does not report whether it has been restarted")
            return
        about = {
            "start": facts.start_marker if self.model is None else None,
            "build": version("xllamacpp"),
            "kv": _KV_TYPES,
            "rewind": swapper.rewind,
            "context": facts.context,
            "slots": facts.slots,
            "vocabulary": facts.vocabulary,
        }
        try:
            await swapper.adopt(self.model, about)
        except OSError as error:
            log.warning(_NOT_KEPT, reason=f"it is not known which of them fit the engine: {error}")
            return
        log.info(
            "the KV caches of idle conversations are kept in files",
            path=str(self.directory.path),
            size=f"up to {self.directory.limit / 2**30:.1f} GiB (engine.slot_files_bytes)",
        )


@contextmanager
def open_slot_files(
    config: EngineConfig, rates: Rates, share: float, metrics: SlotFileMetrics
) -> Generator[SlotFiles | None]:
    """Open the directory for as long as the context lasts; None if there is none, and slots go to the host cache.

    Args:
        config: the engine's settings.
        rates: how fast the engine is, as measured.
        share: part of the bytes that one of several principals may have.
        metrics: counts swaps and refused files.

    Raises `ConfigError` for a directory that can't be used.
    """
    ours = config.kind == "embedded"
    if not ours and config.slot_files in {"auto", "off"}:
        yield None
        return
    with slot_directory(config.slot_files, slot_files_limit(config)) as directory:
        if directory is None:
            yield None
            return
        paging = Paging(directory.limit, rates, isolate=config.isolate, share=share)
        yield SlotFiles(embedded_model(config) if ours else None, directory, paging, metrics)


def own_part(facts: EngineFacts, keeper: SlotKeeper | None, own: range | None) -> EngineFacts:
    """The facts of the part of an engine that is this gateway's, if other gateways have slots of their own.

    Args:
        facts: what the engine reports about itself.
        keeper: the engine, if its slots can be addressed.
        own: the slots that are ours; None: all.

    Raises:
        EngineUnavailable: the engine has fewer slots.
    """
    if own is None or keeper is None:
        return facts
    if own.stop > facts.slots:
        raise EngineUnavailable(
            f"engine.own_slots is {own.start}-{own.stop - 1}, but the server's slots are 0-{facts.slots - 1}: "
            "name slots that it has, or start it with more (llama-server --parallel)"
        )
    return replace(facts, slots=len(own))


async def slot_table(
    keeper: SlotKeeper | None,
    facts: EngineFacts,
    tokens: Sequence[int],
    config: GatewayConfig,
    files: SlotFiles | None,
    tasks: TaskGroup,
) -> SlotTable:
    """The slots of an engine that has just come up.

    Args:
        keeper: the engine, if its slots can be addressed.
        facts: what it reports about itself.
        tokens: a few ordinary tokens.
        config: the gateway's settings.
        files: the slot files; None: there are none.
        tasks: runs the task that reads the engine's model file, to find out which slot files fit; the engine is used
            in the meantime.
    """
    ours = keeper if keeper is not None and await _may_choose(keeper, config.engine) else None
    first = own.start if (own := config.engine.slot_range) is not None else 0
    found, swapper = Findings(), None
    if ours is not None:
        directory = None if files is None else files.directory
        found = await find_rewind(ours, range(first, first + facts.slots), tokens, directory)
    if found.fault is not None:
        log.warning(_NOT_KEPT, reason=found.fault)
    elif files is not None and ours is not None:
        swapper = files.swapper(ours, found.rewind)
        tasks.start_soon(files.adopt, swapper, facts)
    return SlotTable(
        facts.slots,
        first=first,
        at_rest=ours.is_at_rest if ours is not None else None,
        isolate=config.engine.isolate,
        salt=partial(salt_of, config.engine.api_key) if facts.can.salts and config.engine.isolate else None,
        share=config.limits.principal_share,
        swapper=swapper,
        rest_time=config.engine.idle_timeout,
        rewind=found.rewind,
    )


async def _may_choose(engine: SlotKeeper, config: EngineConfig) -> bool:
    """Whether we choose the slots: nobody else uses them, and the engine shows which of them are at rest."""
    if config.kind != "embedded" and not config.exclusive and config.own_slots is None:
        return False
    shown = await engine.shows_slots()
    if not shown:
        log.warning("the engine does not show its slots, so the gateway can't choose them: start it with --slots")
    return shown
