"""Whether the engine may be used right now, and what to use it with.

Starts or reaches the engine, proves the maps against its tokenizer, and hands out a `ReadyEngine`. When the engine goes
down, it closes the route with a reason, starts the engine again or waits for it, and proves the maps again. It does not
generate. `gateway.serve` shows the state.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.embedded.engine_process import EmbeddedServer, embedded_server
from gateway.engine.embedded.model_file import ModelFile
from gateway.engine.interface import GenerateRequest
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.engine_slots import SlotFiles, open_slot_files, own_part, slot_table
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.prefill import Prefill
from gateway.engine.start.engine_health import STEADY, Outage, Pauses, Pulse, first_words, until_file_changes
from gateway.engine.start.maps import BATTERY, MapProofs, MapSet, needs_engine, resolve_maps
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.engine.wire.adapter import EngineAddress, connected
from gateway.engine.wire.engine_client import EngineClient
from gateway.errors import (
    ConfigError,
    EngineError,
    EngineRefused,
    EngineStarting,
    EngineUnavailable,
    MapDiffers,
    ModelUnusable,
)
from gateway.escape import mask_text
from gateway.observe.backend_metrics import SlotFileMetrics
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.toolcalls.formats.registry import AUTO, choose_format, format_named
from leaf_sdk.vocab import TokenMap

_POLL = 2.0
"""Seconds between two health checks of an engine."""
_HEALTH_TIMES: Final = (2.0, 4.0, 8.0)
"""Seconds for the answer to each attempt of a health check: an engine on a busy machine needs more than an idle one."""
_RETRY = 0.5
_RETRY_MAX: Final = 4.0
"""Seconds between two attempts to reach a server: it costs little, and somebody may be waiting for it."""
_RESTART_MAX: Final = 60.0
"""Seconds between two starts of an embedded engine that did not come up: each reads the whole model."""
_FIRST_ANSWER: Final = 4.0
"""Seconds for a server's first answer. With each attempt it gets longer, as it may be busy."""
_FIRST_ANSWER_MAX: Final = 16.0
_LAST_WORDS: Final = 2.0
"""Seconds to wait for the exit status of an embedded engine that does not answer any more."""

_ONE_ID: Final = 4.0
"""Seconds in which an engine that seems stuck, or was, has to generate an id."""

log = get_logger("engine")


class EngineRoute:
    """One engine of a gateway, through its ups and downs."""

    def __init__(
        self,
        config: GatewayConfig,
        changed: Callable[[bool, str], object],
        metrics: Callable[[], SlotFileMetrics] = lambda: Metrics().slot_files,
        *,
        name: str = "engine",
        settings: EngineConfig | None = None,
        known: MapSet | None = None,
    ) -> None:
        """Raises `ConfigError` for an unknown tool format, and for a map that can't be opened.

        Args:
            config: the gateway's settings.
            changed: called whenever the engine comes up or goes down, with the reason in the latter case.
            metrics: returns what counts its slot files; called when the engine is first started.
            name: the name of this engine, if it is one of several.
            settings: the settings of this engine, if it is one of several; None: `[engine]`.
            known: maps that other routes have opened, so that they need not be opened again.
        """
        self._name = name
        self._settings = config.engine if settings is None else settings
        if self._settings.tool_format != AUTO:
            format_named(self._settings.tool_format)
        # As if it were the only engine.
        self._config = replace(config, engine=self._settings, engines={})
        self._known = known
        self._changed = changed
        self._metrics = metrics
        self._rates = Rates()
        self.slot_files: SlotFiles | None = None
        self._ready: ReadyEngine | None = None
        self._was_stuck = False
        self._closed: EngineError = EngineStarting(first_words(self._settings))
        self._outage = Outage(name)
        self._up_since = 0.0
        self._file = ModelFile(self._settings)
        self._lost = anyio.Event()
        self._attempted = anyio.Event()
        self._ahead = anyio.Event()
        """Set once the maps are prepared for their proof."""
        self._server: EmbeddedServer | None = None
        self._misconfigured: ConfigError | None = None
        self.child_pid: int | None = None
        """Process id of the embedded engine while it runs."""
        self.maps = MapSet() if needs_engine(self._config) else self._resolved_maps()
        self._proofs = MapProofs(self.maps, self._config, known)

    def _resolved_maps(self) -> MapSet:
        try:
            return resolve_maps(self._config, known=self._known)
        except ConfigError:
            # The map comes from the model once that can be loaded; until then the route says what is wrong with it.
            if self._config.tokens.map == "auto" and self._file.fault() is not None:
                return MapSet()
            raise

    @asynccontextmanager
    async def running(self, start_wait: float = inf) -> AsyncGenerator[None]:
        """Keep the engine up for as long as the context lasts.

        It is entered once the first attempt is over, or after `start_wait` seconds: a large model loads for minutes.
        Raises `ConfigError` when the first attempt shows in that time that the settings can't work; an engine that is
        merely down, or that uses another tokenizer, closes the route and does not raise.
        """
        if self._settings.kind == "none":
            self._closed = EngineUnavailable("this gateway has no engine; start it with --engine embedded or URL")
            yield
            return
        refused: ConfigError | None = None
        share = self._config.limits.principal_share
        with open_slot_files(self._settings, self._rates, share, self._metrics()) as self.slot_files:
            async with anyio.create_task_group() as tasks:
                # Who waits for the outcome of the first attempt wants it even from an engine on a busy machine.
                first = self._settings.idle_timeout if start_wait == inf else _FIRST_ANSWER
                tasks.start_soon(self._keep_up, tasks, first)
                with anyio.move_on_after(start_wait):
                    await self._attempted.wait()
                # An engine that comes up later may also show that a setting is wrong; that only closes the route.
                refused = self._misconfigured
                if refused is None:
                    yield
                tasks.cancel_scope.cancel()
        if refused is not None:
            raise refused

    def ready(self) -> ReadyEngine:
        """The engine to use for one request. Raises `EngineUnavailable` or `MapDiffers` while the route is closed."""
        if self._ready is None:
            raise self._closed
        return self._ready

    @property
    def is_open(self) -> bool:
        """Whether an engine is running against which every map was proven."""
        return self._ready is not None

    def report_loss(self) -> None:
        """Check the engine at once instead of at the next poll: a request found it gone."""
        self._lost.set()

    async def _keep_up(self, tasks: TaskGroup, seconds: float) -> None:
        embedded = self._settings.kind == "embedded"
        # Reaching a server that was there a moment ago costs little.
        pauses = Pauses(_RETRY, _RESTART_MAX, STEADY) if embedded else Pauses(_RETRY, _RETRY_MAX, 0.0)
        while True:
            replaced = False
            before = await self._file.stamp()
            try:
                async with self._engine(tasks, seconds) as engine:
                    failure = await self._use(engine, tasks)
                    replaced = engine.is_replaced
            except ConfigError as error:
                self._misconfigured = error
                failure = EngineUnavailable(error.message)
            except EngineError as error:
                failure = self._parents_words(error)
            up = None if self._ready is None else monotonic() - self._up_since
            pause = pauses.after(up)
            seconds = _FIRST_ANSWER if up is not None else min(seconds * 2, _FIRST_ANSWER_MAX)
            lasts = embedded and isinstance(failure, ModelUnusable | MapDiffers)
            self._close(until_file_changes(failure) if lasts else failure)
            self._attempted.set()
            # If another engine answers in its place, it is proven at once.
            with anyio.move_on_after(0 if replaced else inf if lasts else pause):
                await self._file.until_changed(before)

    def _parents_words(self, failure: EngineError) -> EngineError:
        """Why the engine is not up, if another process of this gateway runs it and says so."""
        worker = self._config.worker
        words = None if worker is None else worker.engine_fault(self._name)
        return failure if words is None else EngineUnavailable(words)

    @asynccontextmanager
    async def _engine(self, tasks: TaskGroup, seconds: float) -> AsyncGenerator[EngineClient]:
        settings, self._server, self._ahead = self._settings, None, anyio.Event()
        tasks.start_soon(self._prepare_ahead)
        async with AsyncExitStack() as stack:
            address = EngineAddress(settings.url or "", settings.api_key, ours=False)
            if settings.kind == "embedded":
                kept = self.slot_files.directory.path if self.slot_files else None
                server = await stack.enter_async_context(embedded_server(settings, slot_files=kept))
                address = EngineAddress(server.url, server.key, ours=True)
                self.child_pid, self._server = server.pid, server
                tasks.start_soon(self._watch_child, server)
            engine = await connected(settings, address, self.report_loss, self._rates.generated, seconds)
            stack.push_async_callback(engine.aclose)
            yield engine

    async def _watch_child(self, server: EmbeddedServer) -> None:
        await server.ended()
        self._lost.set()

    async def _use(self, engine: EngineClient, tasks: TaskGroup) -> EngineError:
        """Open the route; return why it must be closed again. Catches errors here, inside the engine's task group."""
        try:
            ready = await self._open(engine, tasks)
        except ConfigError as error:
            self._misconfigured = error
            return EngineUnavailable(error.message)
        except EngineError as error:
            return error
        self._attempted.set()
        try:
            stuck = await self._until_lost(engine, ready.slots, ready.token_map)
            if stuck is not None:
                engine.end_all(stuck)
        except anyio.get_cancelled_exc_class():
            await ready.slots.keep()
            raise
        # An embedded engine is started anew.
        self._was_stuck = stuck is not None and self._server is None
        return EngineUnavailable(stuck or await self._why_lost(engine))

    async def _why_lost(self, engine: EngineClient) -> str:
        if self._server is None:
            what = "was replaced by another" if engine.is_replaced else "does not answer any more"
            return (
                f"the engine at {mask_text(engine.url)!r} {what}; the gateway connects to it as soon as it can be used"
            )
        with anyio.move_on_after(_LAST_WORDS):
            return f"{await self._server.ended()}; the gateway restarts it"
        return "the embedded engine does not answer its health checks any more; the gateway restarts it"

    async def _open(self, engine: EngineClient, tasks: TaskGroup) -> ReadyEngine:
        self._lost = anyio.Event()
        await self._ahead.wait()
        pulse = Pulse(engine.work, lambda: 0.0, self._settings.idle_timeout) if self._was_stuck else None
        if pulse is not None and not await pulse.moves():
            raise self._still_stuck()
        proven = await engine.prove(self._proofs.prove)
        # Later connections are checked with the map as it is now; a new encoder would hold the loop for seconds.
        await run_sync(self._proofs.prepare)
        facts, token_map = own_part(proven.facts, engine.keeper, self._settings.slot_range), proven.token_map
        template = ChatTemplate(engine, facts, token_map)
        # Only an id proves that it works again, unless it is busy and makes progress with requests of others.
        works = pulse is None or await _generates(engine, SlotTable(facts.slots), token_map)
        if pulse is not None and not works and not await pulse.advances():
            raise self._still_stuck()
        some = token_map.encode(BATTERY[0])
        slots = await slot_table(engine.keeper, facts, some, self._config, self.slot_files, tasks)
        facts = replace(facts, can=replace(facts.can, rewind=slots.rewind))
        wanted = self._settings.tool_format
        can = {"supports_tools": facts.supports_tools, "supports_calls": facts.supports_calls}
        tool_format = choose_format(facts.chat_template, **can, wanted=wanted)
        keeper = engine.keeper if self._settings.prefill == "auto" and slots.chooses else None
        prefill = Prefill(slots, keeper.fill_slot, self._rates) if keeper is not None else None
        self._ready = ready = ReadyEngine(
            *(engine, facts, token_map, template, slots, tool_format),
            prefill=prefill,
            name=self._name,
            settings=self._settings,
        )
        self._up_since = monotonic()
        self._changed(True, "")
        log.info(
            "engine ready",
            engine=self._name,
            model=facts.model,
            url=engine.url,
            context=facts.context,
            slots=facts.slots,
            tool_format=tool_format.format.name,
            pid=self.child_pid,
            **({} if slots.chooses or self._settings.kind != "url" else {"slots_chosen_by": "engine"}),
            **({"failed_attempts": failed} if (failed := self._outage.recovered()) else {}),
        )
        return ready

    async def _prepare_ahead(self) -> None:
        """Prepare the maps in a thread, while an embedded engine loads its model."""
        try:
            await run_sync(self._proofs.prepare, abandon_on_cancel=True)
        finally:
            self._ahead.set()

    async def _until_lost(self, engine: EngineClient, slots: SlotTable, token_map: TokenMap) -> str | None:
        """Return when the engine is gone: None, or the sentence that says why it is of no use though it is there.

        It is checked at each poll, when its process ends, and on a reported loss.
        """
        pulse = self._pulse(engine)
        while True:
            with anyio.move_on_after(_POLL):
                await self._lost.wait()
            if not await self._still_there(engine):
                return None
            self._lost = anyio.Event()
            # A server that is idle, and does not say so, generates an id.
            if (stuck := await pulse.stuck()) is not None and not await _generates(engine, slots, token_map):
                return f"{stuck}; {self._way_out}"
            if self._server is None:
                continue
            if (not pulse.prefills and await slots.look()) or slots.jammed is not None:
                return f"slot {slots.jammed} of the engine does not stop working; {self._way_out}"

    @property
    def _way_out(self) -> str:
        return "the gateway restarts it" if self._server else "the gateway uses it again once it answers"

    def _pulse(self, engine: EngineClient) -> Pulse:
        """The watch over the engine's progress."""
        return Pulse(engine.activity, lambda: engine.told, self._settings.idle_timeout)

    def _still_stuck(self) -> EngineUnavailable:
        return EngineUnavailable(f"the engine is still stuck; {self._way_out}")

    async def _still_there(self, engine: EngineClient) -> bool:
        """Whether the engine is healthy. Asks a few times, since an engine that is only busy is not lost.

        Of an embedded one, whether its process runs: on a busy machine it may get no time to answer. If it is stuck,
        its pulse says so.
        """
        if self._server is not None:
            # The question keeps idle connections open.
            await engine.healthy(_HEALTH_TIMES[0])
            return self._server.is_running
        for seconds in _HEALTH_TIMES:
            if await engine.healthy(seconds):
                return True
            if engine.is_replaced:
                return False
            await anyio.sleep(_POLL / 10)
        return False

    def _close(self, failure: EngineError) -> None:
        if self._ready is not None:
            self._ready.life.end()
        self._outage.failed(failure, monotonic())
        self._ready = None
        self._closed = failure
        self.child_pid = None
        self._changed(False, failure.message)


async def _generates(engine: EngineClient, slots: SlotTable, token_map: TokenMap) -> bool:
    """Whether the engine generates an id, or at least says why it refuses to."""
    prompt = token_map.encode("a")
    try:
        with anyio.move_on_after(_ONE_ID):
            async with (
                slots.take(prompt, "", alone=True) as place,
                engine.generate(GenerateRequest(prompt, place.pinned, 1)) as events,
            ):
                await anext(events)
                return True
    except EngineRefused as error:
        return error.status < 500
    except EngineError:
        pass
    return False
