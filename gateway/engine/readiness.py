"""Whether the engine may be used right now, and what to use it with.

Starts or reaches the engine, proves the maps against its tokenizer, and hands out a `ReadyEngine`. When the engine goes
down, it closes the route with a reason, starts the engine again or waits for it, and proves the maps again. It does not
generate. `gateway.serve` shows the state.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.connect import EngineAddress, connected
from gateway.engine.embedded import EmbeddedServer, embedded_server
from gateway.engine.http.client import EngineClient
from gateway.engine.interface import Engine, EngineFacts, Options, Provable, Proven
from gateway.engine.map_proof import check_map, with_all_specials
from gateway.engine.maps import MapSet, needs_engine, resolve_maps
from gateway.engine.prefill import Prefill
from gateway.engine.rates import Rates
from gateway.engine.shapes import Shapes
from gateway.engine.slot_files import SlotFiles, open_slot_files, own_part, slot_table
from gateway.engine.slots import SlotTable
from gateway.engine.template import ChatTemplate
from gateway.engine.watched import Life
from gateway.errors import ConfigError, EngineError, EngineUnavailable, MapDiffers
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.slot_file_metrics import SlotFileMetrics
from gateway.toolcalls import AUTO, ChosenFormat, LooseTools, choose_format, format_named
from leaf_sdk.vocab import TokenMap

_POLL = 2.0
"""Seconds between two health checks of an engine."""
_HEALTH_TIMES: Final = (2.0, 4.0, 8.0)
"""Seconds for the answer to each attempt of a health check: an engine on a busy machine needs more than an idle one."""
_RETRY = 0.5
_RETRY_MAX = 10.0

_VARIANTS = 16
"""Sets of options for which a template, and what is known about it, is kept."""

log = get_logger("engine")


@dataclass(frozen=True, slots=True)
class ReadyEngine:
    """A running engine whose tokenizer has been proven equal to the maps."""

    engine: Engine
    facts: EngineFacts
    token_map: TokenMap
    template: ChatTemplate
    slots: SlotTable
    tool_format: ChosenFormat
    """How this model's calls are read, and whether its template or we teach it to write them."""
    loose: LooseTools = field(default_factory=LooseTools)
    """Tools whose schemas it has refused in a grammar."""
    number: int = field(default_factory=count().__next__)
    """The number of this start, unique among all engines."""
    shapes: Shapes = field(default_factory=Shapes)
    """Which conversations its template only appends to."""
    variants: "OrderedDict[str, tuple[ChatTemplate, Shapes]]" = field(
        default_factory=OrderedDict[str, tuple[ChatTemplate, Shapes]]
    )
    """Its template with options, and the shapes of that, by the options."""
    prefill: Prefill | None = None
    """What processes ids ahead of time; None if the engine's slots are not ours, or it is not wanted."""
    name: str = "engine"
    """Its name among the engines of the gateway."""
    settings: EngineConfig = field(default_factory=EngineConfig)
    """Its settings."""
    life: Life = field(default_factory=Life)
    """The life of this start, which ends when the engine is lost."""

    def with_options(self, options: Options) -> "ReadyEngine":
        """Return the same engine with options for its template."""
        template = self.template.with_options(options)
        if not template.options:
            return self
        key = repr(sorted(template.options.items()))
        if key not in self.variants:
            self.variants[key] = (template, Shapes())
            if len(self.variants) > _VARIANTS:
                self.variants.popitem(last=False)
        self.variants.move_to_end(key)
        known, shapes = self.variants[key]
        return replace(self, template=known, shapes=shapes)


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
        self._closed: EngineError = EngineUnavailable("the engine has not been started yet")
        self._lost = anyio.Event()
        self._attempted = False
        self._misconfigured: ConfigError | None = None
        self.child_pid: int | None = None
        """Process id of the embedded engine while it runs."""
        self.maps = MapSet() if needs_engine(self._config) else resolve_maps(self._config, known=known)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep the engine up for as long as the context lasts.

        The first attempt is made before the context is entered. Raises `ConfigError` when the settings can't work; an
        engine that is merely down, or that uses another tokenizer, closes the route and does not raise.
        """
        if self._settings.kind == "none":
            self._closed = EngineUnavailable("this gateway has no engine; start it with --engine embedded or URL")
            yield
            return
        refused: ConfigError | None = None
        share = self._config.limits.principal_share
        with open_slot_files(self._settings, self._rates, share, self._metrics()) as self.slot_files:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._keep_up, tasks)
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

    async def _keep_up(self, tasks: TaskGroup, *, task_status: TaskStatus[None]) -> None:
        pause = _RETRY
        while True:
            replaced = False
            try:
                async with self._engine(tasks) as engine:
                    failure = await self._use(engine, tasks, task_status)
                    replaced = engine.is_replaced
            except ConfigError as error:
                self._misconfigured = error
                failure = EngineUnavailable(error.message)
            except EngineError as error:
                failure = error
            pause = _RETRY if self._ready is not None else min(pause * 2, _RETRY_MAX)
            self._close(failure)
            self._announce(task_status)
            # If another engine answers in its place, it is proven at once.
            await anyio.sleep(0 if replaced else pause)

    def _announce(self, task_status: TaskStatus[None]) -> None:
        """Report that the first attempt is over, successful or not."""
        if not self._attempted:
            self._attempted = True
            task_status.started()

    @asynccontextmanager
    async def _engine(self, tasks: TaskGroup) -> AsyncGenerator[EngineClient]:
        settings = self._settings
        async with AsyncExitStack() as stack:
            address = EngineAddress(settings.url or "", settings.api_key, ours=False)
            if settings.kind == "embedded":
                kept = self.slot_files.directory.path if self.slot_files else None
                server = await stack.enter_async_context(embedded_server(settings, slot_files=kept))
                address = EngineAddress(server.url, server.key, ours=True)
                self.child_pid = server.pid
                tasks.start_soon(self._watch_child, server)
            engine = await connected(settings, address, self.report_loss, self._rates.generated)
            stack.push_async_callback(engine.aclose)
            yield engine

    async def _watch_child(self, server: EmbeddedServer) -> None:
        await server.wait()
        self._lost.set()

    async def _use(self, engine: EngineClient, tasks: TaskGroup, task_status: TaskStatus[None]) -> EngineError:
        """Open the route; return why it must be closed again. Catches errors here, inside the engine's task group."""
        try:
            slots = await self._open(engine, tasks)
        except ConfigError as error:
            self._misconfigured = error
            return EngineUnavailable(error.message)
        except EngineError as error:
            return error
        self._announce(task_status)
        try:
            await self._until_lost(engine)
        except anyio.get_cancelled_exc_class():
            await slots.keep()
            raise
        return EngineUnavailable("the engine was lost; the gateway restarts it, or waits for it to come back")

    async def _open(self, engine: EngineClient, tasks: TaskGroup) -> SlotTable:
        self._lost = anyio.Event()
        proven = await engine.prove(self._proof)
        facts, token_map = own_part(proven.facts, engine.keeper, self._settings.slot_range), proven.token_map
        template = ChatTemplate(engine, facts, token_map)
        slots = await slot_table(engine.keeper, facts, self._config, self.slot_files, tasks)
        wanted = self._settings.tool_format
        tool_format = choose_format(facts.chat_template, supports_tools=facts.supports_tools, wanted=wanted)
        keeper = engine.keeper if self._settings.prefill == "auto" and slots.chooses else None
        prefill = Prefill(slots, keeper.fill_slot, self._rates) if keeper is not None else None
        self._ready = ReadyEngine(
            *(engine, facts, token_map, template, slots, tool_format),
            prefill=prefill,
            name=self._name,
            settings=self._settings,
        )
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
        )
        return slots

    async def _proof(self, questions: Provable) -> Proven:
        """Prove every accepted map against the engine that answers these questions."""
        facts = await questions.facts()
        if self.maps.session is None:
            self.maps.update(resolve_maps(self._config, engine_model=facts.model_path, known=self._known))
        for candidate in list(self.maps.accepted.values()):
            await check_map(questions, facts, candidate)
            whole = await with_all_specials(questions, candidate, plain=facts.can.plain_tokenize)
            if whole is not candidate:
                self.maps.replace(whole)
                log.warning(
                    "the map does not list some control tokens",
                    map=whole.map_id,
                    tokens=self.maps.left_out[whole.map_id],
                )
        if self.maps.session is None:
            raise EngineUnavailable("the engine needs a token map; start the gateway with --map auto or --map PATH")
        return Proven(facts, self.maps.session)

    async def _until_lost(self, engine: EngineClient) -> None:
        """Return when the engine is gone. It is checked at each poll, when its process ends, and on a reported loss."""
        while True:
            with anyio.move_on_after(_POLL):
                await self._lost.wait()
            if not await self._still_there(engine):
                return
            self._lost = anyio.Event()

    async def _still_there(self, engine: EngineClient) -> bool:
        """Whether the engine is healthy. Asks a few times, since an engine that is only busy is not lost."""
        for seconds in _HEALTH_TIMES:
            if await engine.healthy(seconds):
                return True
            if engine.is_replaced:
                return False
            await anyio.sleep(_POLL / 10)
        return False

    def _close(self, reason: EngineError) -> None:
        if self._ready is not None:
            self._ready.life.end()
        if self._ready is not None or type(reason) is not type(self._closed):
            level = log.error if isinstance(reason, MapDiffers) else log.warning
            level("engine route closed", engine=self._name, reason=reason.message)
        self._ready = None
        self._closed = reason
        self.child_pid = None
        self._changed(False, reason.message)
