"""From a closed call to the ids that go back to the model.

Starts each call of a gateway tool as soon as it is closed, while the model may still be writing the next one, and turns
every outcome (a result, an error result, an unknown tool, arguments that don't fit) into ids of ordinary text, cut to
the limit. It does not know the template or the engine's stream.
"""

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio.abc import TaskGroup

from gateway.agent.calls.call_audit import Ledger
from gateway.agent.calls.request_tools import ToolOffers
from gateway.agent.calls.tool_finder import FoundTools, ToolFinder
from gateway.agent.events import KeptFigures, Source, ToolFinished
from gateway.agent.results.id_slices import spelled_arguments
from gateway.agent.results.large_results import SPECS, Kept, ResultReader, Selection
from gateway.agent.results.result_shortening import compacted, cut, least_tokens, shorten
from gateway.config import LimitsConfig
from gateway.context.compose.conversation import Conversation
from gateway.context.large_result_store import ResultStore
from gateway.errors import GatewayError, UnknownTool
from gateway.observe.audit import Audit
from gateway.protocol.eras import MAP_KEY, PROGRESS_KEY
from gateway.proxy.caller import ANYBODY, Nobody, Principal
from gateway.proxy.costs import DefinitionCosts
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import IdPiece, OtherPart, ResultTokens, UnreadText, content_of, read_parts
from gateway.proxy.results import CallOutcome, WrittenIds
from gateway.toolcalls.schema.spec import ToolSpec, validate_call
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.vocab import TokenMap

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

_UNREAD: Final = 2000
"""Most ids of a result that are left undecoded until somebody wants its text."""
_QUICK_BLOCKS: Final = 64
"""Blocks of a result that are short, and so tokenized at once."""


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """One finished call: what goes into the context, and what the client is told."""

    pieces: tuple[IdPiece, ...]
    finished: ToolFinished
    ids_seconds: float
    """Seconds that it took to turn the result into ids."""
    server: str | None = None
    """The server of the tool; None: the gateway itself answered, or there is no such tool."""
    defined: tuple[ToolSpec, ...] = ()
    """Tools whose definitions are in it."""
    kept: Kept | None = None
    """What was kept of it, where only its beginning goes into the context."""
    selection: Selection | None = None
    """What it selected, for a call that reads a kept result."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of all pieces."""
        return tuple(token_id for piece in self.pieces for token_id in piece.ids)


class CallRunner:
    """Runs tool calls for the agent."""

    def __init__(
        self,
        proxy: Proxy,
        tokens: ResultTokens,
        limits: LimitsConfig,
        audit: Audit | None = None,
        costs: DefinitionCosts | None = None,
        tracing: "Tracing | None" = None,
        results: ResultStore | None = None,
    ) -> None:
        """`costs`: what the tools' definitions cost; estimated when unset. `tracing`: makes a span for each call.

        `results`: keeps those that are too large for a model; None: they are cut.
        """
        self._proxy = proxy
        self.offers = ToolOffers(proxy, costs or DefinitionCosts(lambda: None))
        self._tokens = tokens
        self._limits = limits
        self.ledger = None if audit is None else Ledger(self.offers, audit)
        """Records the calls, where an audit log is configured."""
        self.tracing = tracing
        self._results = results if limits.kept_result_bytes else None

    def reader_of(self, conversation: Conversation | None) -> ResultReader | None:
        """What keeps the large results of a conversation, and reads them; None: they are cut."""
        return None if self._results is None or conversation is None else ResultReader(self._results, conversation)

    @asynccontextmanager
    async def running(
        self,
        offered: Sequence[ToolSpec],
        principal: Principal = ANYBODY,
        map_id: str = "",
        allows: Callable[[str], bool] = lambda name: True,
        *,
        finder: ToolFinder | None = None,
        conversation: Conversation | None = None,
        approved: bool = False,
    ) -> AsyncGenerator["RunningCalls"]:
        """A context in which calls may be started; it exits when all of them are over.

        `offered`: the tools that this request knows; it may call those for which `allows` is true. `map_id`: the
        engine's map, which tools may be told (`wanted_ids`). `finder`: finds tools that it does not know yet.
        `conversation`: the one that keeps results that are too large for the model; None: they are cut.
        `approved`: whether somebody has approved each call.
        An error inside the context cancels the calls that are still running, and is raised unchanged.
        """
        failure: Exception | None = None
        calls: RunningCalls | None = None
        try:
            async with anyio.create_task_group() as tasks:
                calls = RunningCalls(
                    *(self, tasks, offered, principal, map_id, allows, finder, conversation), approved=approved
                )
                try:
                    yield calls
                    calls.wanted = True
                except Exception as error:  # noqa: BLE001 - the task group would wrap it
                    failure = error
                    tasks.cancel_scope.cancel()
        finally:
            if calls is not None:
                calls.note_lost()
        if failure is not None:
            raise failure

    async def call(
        self,
        call: CallClosed,
        offered: Mapping[str, ToolSpec],
        principal: Principal,
        map_id: str,
        allows: Callable[[str], bool],
        finder: ToolFinder | None,
        reader: ResultReader | None,
        *,
        approved: bool,
    ) -> "Answered":
        """Run one call; an error is an answer too. What it takes: see `running`."""
        started = time.perf_counter()
        try:
            if finder is not None and finder.holds(call.name) and allows(call.name):
                found = await finder.unread(call.name)
                return Answered(call, found.text, time.perf_counter() - started, found)
            if reader is not None and call.name in reader.names and allows(call.name):
                tool = next(each for each in SPECS if each.name == call.name)
                selection = await reader.select(call.name, _arguments(call.arguments, tool))
                return Answered(call, selection, time.perf_counter() - started)
            if finder is not None and call.name not in offered and finder.guesses(call.name) and allows(call.name):
                found = await finder.nearest(call.name, call.arguments)
                return Answered(call, found.text, time.perf_counter() - started, found)
            arguments = _arguments(call.arguments, _allowed(call.name, offered, allows))
            if finder is not None and call.name == finder.name:
                found = await finder.search(arguments)
                outcome = CallOutcome(_text_result(found.text), "ok")
                return Answered(call, outcome, time.perf_counter() - started, found)
            # Nobody sees the progress, but it gives a long call more time.
            meta: dict[str, Any] = {PROGRESS_KEY: call.id}
            params: dict[str, Any] = {"name": call.name, "arguments": arguments, "_meta": meta}
            written = None
            if (token_map := self._tokens.map_of(map_id)) is not None:
                meta[MAP_KEY] = map_id
                written = self._written(call, arguments, token_map)
            caller = Nobody(modern=False, principal=principal)
            outcome = await self._proxy.call_tool(params, caller, written=written, approved=approved)
        except (GatewayError, ValueError) as error:
            return Answered(call, f"error: {error}", time.perf_counter() - started)
        return Answered(call, outcome, time.perf_counter() - started)

    def _written(self, call: CallClosed, arguments: Mapping[str, Any], token_map: TokenMap) -> WrittenIds | None:
        """The ids in which the model wrote the call, for a tool that takes them."""
        if not self._proxy.takes_ids(call.name):
            return None
        ids, name = spelled_arguments(call.ids, token_map, call.name, arguments) or (None, None)
        return WrittenIds(ids, name)

    async def finish(
        self, answered: "Answered", token_map: TokenMap, most: int, reader: ResultReader | None = None
    ) -> FinishedCall:
        """Turn an answer into ids, at most `most`. `reader`: keeps what is more than that; None: it is cut."""
        began = time.perf_counter()
        call, outcome = answered.call, answered.outcome
        server, kept, whole, is_error, saved = None, None, True, False, 0
        selection = outcome if isinstance(outcome, Selection) else None
        if isinstance(outcome, Selection):
            pieces = outcome.pieces(most, token_map)
            source, text = "shim", token_map.decode(token_id for piece in pieces for token_id in piece.ids)
        elif isinstance(outcome, str):
            made = (IdPiece(tuple(token_map.encode(outcome)), "shim"),)
            pieces, whole = cut(made, most, token_map, shortened=False)
            source, text, is_error = "gateway", outcome, True
            entry = self.offers.entry(call.name)
            server = None if entry is None else entry.server
        else:
            result, server = outcome.result, outcome.server or None
            # What finds tools says by itself what was left out.
            keeper = reader if answered.found is None else None
            compact, saved = await self._compacted(result, server, token_map, most)
            # A part of it is read better by lines, and by the places that its keys have: only what was sent is kept.
            of_compact = None if saved else keeper
            pieces, source, whole, kept = await self._fit_to_share(call.name, compact, token_map, most, of_compact)
            if saved and not whole:
                saved = 0
                pieces, source, whole, kept = await self._fit_to_share(call.name, result, token_map, most, keeper)
            result = compact if saved else result
            text, is_error = _said(result), bool(result.get("isError"))
        finished = ToolFinished(
            call_id=call.id,
            name=call.name,
            arguments=call.arguments,
            said=text,
            source=source,
            leaf_ids=sum(len(p.ids) for p in pieces if p.source == "leaf"),
            shim_ids=sum(len(p.ids) for p in pieces if p.source == "shim"),
            is_error=is_error,
            seconds=answered.seconds,
            found=answered.found.names if answered.found is not None else (),
            kept=None if kept is None else KeptFigures(kept.result.handle, kept.result.tokens, kept.shown),
            saved=saved,
        )
        # A definition that was cut counts as not read.
        new = answered.found.new if answered.found is not None and whole else ()
        return FinishedCall(pieces, finished, time.perf_counter() - began, server, new, kept, selection)

    async def _compacted(
        self, result: Mapping[str, Any], server: str | None, token_map: TokenMap, most: int
    ) -> tuple[Mapping[str, Any], int]:
        """A result in the form that the operator wants of this server, and the tokens that this saves.

        `most`: tokens that it may take; one that is many times larger stays as it is.
        """
        form = "as_sent" if server is None else self._proxy.result_form(server)
        if form == "as_sent" or result.get("isError") or least_tokens(result) > most:
            return result, 0
        return await anyio.to_thread.run_sync(compacted, result, form, token_map)

    async def _fit_to_share(
        self, tool: str, result: Mapping[str, Any], token_map: TokenMap, most: int, reader: ResultReader | None
    ) -> tuple[tuple[IdPiece, ...], Source, bool, Kept | None]:
        """A result as at most `most` ids, where they came from, whether they are all, and what was kept."""
        shown = shorten(result, most)
        shortened = shown is not result
        if shortened and reader is not None and not reader.can_keep(least_tokens(result)):
            reader = None
        if reader is not None and (shortened or len(content_of(result)) > _QUICK_BLOCKS):
            # It takes half a second for each megabyte.
            found = await anyio.to_thread.run_sync(self._tokens.for_engine, tool, result, token_map)
        else:
            found = self._tokens.for_engine(tool, shown, token_map)
        if reader is not None and sum(len(piece.ids) for piece in found.pieces) > most:
            kept = await reader.keep(tool, found.pieces, most, token_map)
            if kept is not None:
                return kept.pieces, found.source, False, kept
        pieces, whole = cut(found.pieces, most, token_map, shortened=shortened and reader is None)
        return pieces, found.source, whole, None

    def share(self, room: int, calls: int, *, defines: bool = False) -> int:
        """How many ids each of several results may take if all of them together may take `room`.

        `defines`: of a result that defines tools. The search bounds it: cut, the tool could never be called.
        """
        share = room // max(calls, 1)
        return share if defines else min(self._limits.result_tokens, share)


@dataclass(frozen=True, slots=True)
class Answered:
    """A call that was run: its outcome, what it selected, or the gateway's own text that says why there is none."""

    call: CallClosed
    outcome: CallOutcome | Selection | str
    seconds: float
    found: FoundTools | None = None
    """What it found, for a search of tools."""

    @property
    def defines(self) -> bool:
        """Whether it defines tools."""
        return self.found is not None and bool(self.found.new)

    @property
    def ended(self) -> str:
        """How it ended, in the words of the audit log."""
        if isinstance(self.outcome, Selection):
            return "ok"
        return "refused" if isinstance(self.outcome, str) else self.outcome.ended


class RunningCalls:
    """The calls of one generation; `CallRunner.running` makes one."""

    def __init__(
        self,
        runner: CallRunner,
        tasks: TaskGroup,
        offered: Sequence[ToolSpec],
        principal: Principal,
        map_id: str,
        allows: Callable[[str], bool],
        finder: ToolFinder | None,
        conversation: Conversation | None,
        *,
        approved: bool,
    ) -> None:
        self._runner = runner
        self._tasks = tasks
        self._offered = {tool.name: tool for tool in offered}
        self._principal = principal
        self._map_id = map_id
        self._allows = allows
        self._finder = finder
        self._conversation = conversation
        self._approved = approved
        self._started: list[CallClosed] = []
        self._answered: list[Answered | None] = []
        self.wanted = False
        """Whether somebody will ask for the outcomes."""
        self.ended = 0.0
        """When the last outcome arrived, by `time.perf_counter`."""
        self._over: anyio.Event | None = None

    def start(self, call: CallClosed) -> None:
        """Start a call; it runs in the background."""
        self._started.append(call)
        self._answered.append(None)
        self._tasks.start_soon(self._run, len(self._answered) - 1, call)

    def closing(self) -> anyio.Event:
        """Declare that no more calls will be started; return an event that is set once all of them are over."""
        self._over = anyio.Event()
        self._note_end()
        return self._over

    def refuse(self, call: CallClosed, why: str) -> None:
        """Answer a call without making it."""
        self._started.append(call)
        self._answered.append(Answered(call, f"error: {why}", 0.0))
        self.ended = time.perf_counter()

    def note_lost(self) -> None:
        """Record the calls whose outcomes nobody will ask for."""
        ledger = self._runner.ledger
        if ledger is None:
            return
        for call, answered in zip(self._started, self._answered, strict=True):
            if not self.wanted or answered is None:
                ledger.lost(self._principal, call, None if answered is None else answered.seconds)

    async def finished(self, token_map: TokenMap, room: int) -> list[FinishedCall]:
        """Turn all results into ids, in the order in which the calls were started. Call it once they are over.

        `room`: ids that all results together may take.
        """
        answered = [one for one in self._answered if one is not None]
        reader = self._runner.reader_of(self._conversation) if answered else None
        calls: list[FinishedCall] = []
        for one in answered:
            share = self._runner.share(room, len(answered), defines=one.defines)
            calls.append(await self._runner.finish(one, token_map, share, reader))
        if (ledger := self._runner.ledger) is not None:
            for one, call in zip(answered, calls, strict=True):
                ledger.told(self._principal, call.finished, token_map.map_id, one.ended)
        return calls

    async def _run(self, n: int, call: CallClosed) -> None:
        tracing = self._runner.tracing
        reader = self._runner.reader_of(self._conversation)
        rights = (self._offered, self._principal, self._map_id, self._allows, self._finder, reader)
        with nullcontext() if tracing is None else tracing.tool_span(call.name, call.id) as span:
            answered = await self._runner.call(call, *rights, approved=self._approved)
            if span is not None and answered.ended != "ok":
                span.erred(answered.ended)
        self._answered[n] = answered
        self.ended = time.perf_counter()
        self._note_end()

    def _note_end(self) -> None:
        if self._over is not None and None not in self._answered:
            self._over.set()


def _allowed(name: str, offered: Mapping[str, ToolSpec], allows: Callable[[str], bool]) -> ToolSpec:
    """The tool of a call. Raises `UnknownTool` if there is no such tool, or it may not be called now."""
    tool = offered.get(name)
    if tool is not None and allows(name):
        return tool
    what = f"the tool {name!r} may not be called now" if tool is not None else f"there is no tool {name!r}"
    others = ", ".join(filter(allows, offered)) or "none"
    raise UnknownTool(f"{what}; the tools that may be called are {others}")


def _text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _arguments(text: str, tool: ToolSpec) -> dict[str, Any]:
    try:
        arguments: object = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the arguments are not JSON ({error}); call again with a JSON object") from error
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments must be a JSON object, not {text[:80]!r}; call again with a JSON object")
    known = cast("dict[str, Any]", arguments)
    if problems := validate_call(tool, known):
        raise ValueError(
            f"the arguments do not fit the tool's schema ({'; '.join(problems)}); call again with some that do"
        )
    return known


def _said(result: Mapping[str, Any]) -> str | Callable[[], str]:
    """A result as the model reads it, for people; where there are few undecoded ids, a function that decodes them."""
    parts = read_parts(result)
    unread = sum(len(part.ids) for part in parts if isinstance(part, UnreadText))

    def read() -> str:
        return "\n".join(part.line if isinstance(part, OtherPart) else part.text for part in parts)

    return read if 0 < unread <= _UNREAD else read()
