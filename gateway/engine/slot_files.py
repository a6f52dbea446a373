"""The slots of each engine that comes up, and the slot files of one gateway through the restarts of its engine.

Opens the directory of the files, keeps what is known of them, and makes each engine's `SlotTable`. It decides nothing
about a file (`paging.py`) and moves none (`swapper.py`).
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from anyio.abc import TaskGroup

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.connect import salt_of
from gateway.engine.embedded import embedded_model, slot_files_limit
from gateway.engine.interface import EngineFacts, SlotKeeper, SlotMover
from gateway.engine.paging import Paging
from gateway.engine.rates import Rates
from gateway.engine.slot_directory import SlotDirectory, slot_directory
from gateway.engine.slots import SlotTable
from gateway.engine.swapper import Swapper
from gateway.errors import EngineUnavailable
from gateway.observe.logs import get_logger
from gateway.observe.slot_file_metrics import SlotFileMetrics

_KV_TYPES: Final = "f16/f16"
"""Of keys and values: what llama.cpp takes where nothing is said, and we say nothing."""

log = get_logger("engine")


@dataclass(frozen=True, slots=True)
class SlotFiles:
    """The slot files of one gateway."""

    model: Path | None
    """What the engine has loaded; None for a server of somebody else's: its files are those of its process."""
    directory: SlotDirectory
    paging: Paging
    metrics: SlotFileMetrics

    def swapper(self, engine: SlotMover) -> Swapper:
        """For an engine that has just been started. It swaps nothing before it is known which engine that is."""
        return Swapper(engine, self.directory, self.paging, self.metrics)

    async def adopt(self, swapper: Swapper, facts: EngineFacts) -> None:
        """Tell a swapper which engine it has."""
        if self.model is None and facts.start_marker is None:
            log.warning("slots are not kept in files: the engine does not tell one start of it from another")
            return
        about = {
            "start": facts.start_marker if self.model is None else None,
            "build": version("xllamacpp"),
            "kv": _KV_TYPES,
            "context": facts.context,
            "slots": facts.slots,
            "vocabulary": facts.vocabulary,
        }
        try:
            await swapper.adopt(self.model, about)
        except OSError as error:
            log.warning("slots are not kept in files: which fit can't be told", reason=str(error))
            return
        log.info("slots are kept in files", path=str(self.directory.path), bytes=self.directory.limit)


@contextmanager
def open_slot_files(
    config: EngineConfig, rates: Rates, share: float, metrics: SlotFileMetrics
) -> Generator[SlotFiles | None]:
    """Open the directory for as long as the context lasts; None where there is none, and slots go to the host cache.

    Args:
        config: the engine's settings.
        rates: what the engine takes, as its prompts tell.
        share: part of the bytes that one of several principals may have.
        metrics: what is counted.

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
    """What of an engine is this gateway's, where others have slots of their own.

    Args:
        facts: what it says of itself.
        keeper: it, where its caches are slots that can be named.
        own: the slots that are ours; None: all.

    Raises:
        EngineUnavailable: it has not so many.
    """
    if own is None or keeper is None:
        return facts
    if own.stop > facts.slots:
        raise EngineUnavailable(
            f"engine.own_slots is {own.start}-{own.stop - 1}, but the server's slots are 0-{facts.slots - 1}: "
            "write those that it has, or start it with more (llama-server --parallel)"
        )
    return replace(facts, slots=len(own))


async def slot_table(
    keeper: SlotKeeper | None, facts: EngineFacts, config: GatewayConfig, files: SlotFiles | None, tasks: TaskGroup
) -> SlotTable:
    """The slots of an engine that has just come up.

    Args:
        keeper: it, where its caches are slots that can be named.
        facts: what it says of itself.
        config: the gateway's settings.
        files: where slots are kept, if anywhere.
        tasks: in which the engine's model is read, to know which files fit; the engine is used in the meantime.
    """
    ours = keeper if keeper is not None and await _may_choose(keeper, config.engine) else None
    swapper = files.swapper(ours) if files is not None and ours is not None else None
    if files is not None and swapper is not None:
        tasks.start_soon(files.adopt, swapper, facts)
    return SlotTable(
        facts.slots,
        first=own.start if (own := config.engine.slot_range) is not None else 0,
        at_rest=ours.is_at_rest if ours is not None else None,
        isolate=config.engine.isolate,
        salt=partial(salt_of, config.engine.api_key) if facts.can.salts and config.engine.isolate else None,
        share=config.limits.principal_share,
        swapper=swapper,
    )


async def _may_choose(engine: SlotKeeper, config: EngineConfig) -> bool:
    """Whether slots are ours to choose: nobody else uses them, and the engine says which of them are at rest."""
    if config.kind != "embedded" and not config.exclusive and config.own_slots is None:
        return False
    shown = await engine.shows_slots()
    if not shown:
        log.warning("the engine does not show its slots, so it chooses them itself: start it with --slots")
    return shown
