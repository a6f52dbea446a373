"""The slots of each engine that comes up, and the slot files of a gateway across restarts of its engine.

Opens the directory of the files, keeps what is known about them, and makes the `SlotTable` of each engine. What is done
with a file is decided in `paging.py` and carried out in `swapper.py`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from anyio.abc import TaskGroup

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.embedded.server import embedded_model, slot_files_limit
from gateway.engine.interface import EngineFacts, Rewind, SlotKeeper, SlotMover
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.paging import Paging
from gateway.engine.slots.rates import Rates
from gateway.engine.slots.rewind_probe import Findings, find_rewind
from gateway.engine.slots.slot_directory import SlotDirectory, slot_directory
from gateway.engine.slots.swapper import Swapper
from gateway.engine.wire.connect import salt_of
from gateway.errors import EngineUnavailable
from gateway.observe.engine_metrics import SlotFileMetrics
from gateway.observe.logs import get_logger

_KV_TYPES: Final = "f16/f16"
"""The types of keys and values: llama.cpp's defaults, which we don't change."""

_NOT_KEPT: Final = "the KV caches of idle conversations are not kept in files"

log = get_logger("engine")


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
