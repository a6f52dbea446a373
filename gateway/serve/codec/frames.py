"""An answer as frames on a socket: gathered by the flush policy, compressed in one context, never held too long."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gateway.agent.events import AgentEvent, Finished, GenerationFinished, IdsGenerated, IdsSpliced
from gateway.escape import cut_text
from gateway.observe.client_metrics import WireMetrics
from gateway.serve.codec.frame_negotiation import VARY, Visible, Wire, WireOffer, read_version
from gateway.serve.generation.answers import Answering, ApiForm
from gateway.serve.generation.request_fields import GenerationFields, WatchIds, WatchTexts
from gateway.serve.http.error_answers import error_answer
from gateway.toolcalls.stream.output_events import CallClosed
from gateway.toolcalls.stream.watcher import REGION_CAP
from leaf_sdk.vocab import TokenMap
from leaf_sdk.wire import Extras, FlushGate, Frame, FrameWriter, Spliced, ToolCall, Usage, open_encoder

# The `ToolWatcher` of `gateway.toolcalls` gives the bodies of calls only; here the markers and everything between them
# are kept unchanged, since the client rebuilds the model's context from them. Source: Codec v0.5, `tool_watcher` in its
# two shapes (an object of ids; a flag with two texts).


def watched_ids(watched: WatchIds | WatchTexts | None, token_map: TokenMap) -> WatchIds | None:
    """Return the markers' ids; None where one is not a single token, and then no regions are reported."""
    if not isinstance(watched, WatchTexts):
        return watched
    start, end = (token_map.encode(text, specials=True) for text in (watched.start, watched.end))
    return WatchIds(start[0], end[0]) if len(start) == len(end) == 1 else None


class Regions:
    """Cuts one stream. Ids between markers, both included, become `region_ids` of a frame."""

    def __init__(self, markers: WatchIds, token_map: TokenMap, *, name_calls: bool) -> None:
        """`name_calls`: whether frames also get the calls; False where another parser provides them."""
        self._markers = markers
        self._map = token_map
        self._name_calls = name_calls
        self._open: list[int] = []
        self._capped = False
        self._calls = 0

    def feed(self, ids: Sequence[int]) -> list[Frame]:
        """Return frames for all ids that are decided: regions that ended or grew too long, and ids outside of them."""
        frames: list[Frame] = []
        outside: list[int] = []
        for token_id in ids:
            if not self._open and not self._capped and token_id != self._markers.start:
                outside.append(token_id)
                continue
            self._open.append(token_id)
            if token_id == self._markers.end:
                frames.append(self._close(outside))
                outside = []
            elif len(self._open) >= REGION_CAP:
                self._capped = True  # the buffer is bounded; the rest of the region follows as further `region_ids`
                frames.append(self._frame(outside))
                outside = []
        if outside:
            frames.append(Frame(tuple(outside)))
        return frames

    def flush(self) -> list[Frame]:
        """End the generation: return the ids of an open region, without a call."""
        if not self._open:
            self._capped = False
            return []
        frame = self._frame([])
        self._capped = False
        return [frame]

    def _frame(self, outside: list[int], calls: tuple[ToolCall, ...] = ()) -> Frame:
        region, self._open = tuple(self._open), []
        return Frame(tuple(outside), tool_calls=calls, extras=Extras(region_ids=region))

    def _close(self, outside: list[int]) -> Frame:
        whole = self._name_calls and not self._capped
        self._capped = False
        return self._frame(outside, (self._call(),) if whole else ())

    def _call(self) -> ToolCall:
        """The call as Codec's servers give it: the trimmed text between the markers, and the name if it holds one."""
        self._calls += 1
        special = self._map.special_ids
        text = self._map.decode(i for i in self._open[1:-1] if i not in special).strip()
        try:
            said: object = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        name = cast("dict[str, Any]", said).get("name") if isinstance(said, dict) else None
        return ToolCall(text, name if isinstance(name, str) else None, f"tc_{self._calls:08x}")


# Only generated ids are `ids`; spliced ids go into the additive fields, with their source. `done` comes once, after the
# last turn. Text events are skipped; calls that were found are named.

_REASONS = {"stop": "eos_token", "length": "length", "tool_calls": "tool_calls"}
_ERROR_TEXT = 1000
"""The most characters of an error's message that a frame carries."""


class FrameReply:
    """The reply to one request."""

    def __init__(self, *, prompt_ids: Sequence[int] = (), regions: Regions | None = None) -> None:
        """`prompt_ids`: sent in the first frame. `regions`: puts the ids of calls apart; None: they stay in `ids`."""
        self._prompt = tuple(prompt_ids)
        self._regions = regions

    def feed(self, event: AgentEvent) -> list[Frame]:
        """Frames for one event, in the order of the context."""
        frames = self._frames(event)
        if self._prompt and frames:
            first = frames[0]
            frames[0] = replace(first, extras=replace(first.extras, prompt_ids=self._prompt))
            self._prompt = ()
        return frames

    def fail(self, message: str) -> list[Frame]:
        """The last frames of an answer that an error cut short."""
        extras = Extras(error=cut_text(message, _ERROR_TEXT), prompt_ids=self._prompt)
        return [*self._open_region(), Frame(done=True, finish_reason="error", extras=extras)]

    def _frames(self, event: AgentEvent) -> list[Frame]:
        match event:
            case IdsGenerated(ids):
                return [Frame(ids)] if self._regions is None else self._regions.feed(ids)
            case IdsSpliced(parts):
                spliced = tuple(Spliced(part.ids, part.source, part.call_id) for part in parts)
                return [*self._open_region(), Frame(extras=Extras(spliced=spliced))]
            case CallClosed():
                return [Frame(tool_calls=(_call(event),))]
            case GenerationFinished():
                return self._open_region()
            case Finished():
                return [self._last(event)]
            case _:
                return []

    def _open_region(self) -> list[Frame]:
        return [] if self._regions is None else self._regions.flush()

    def _last(self, finished: Finished) -> Frame:
        reason = "stop_sequence" if finished.stop is not None else _REASONS[finished.reason]
        usage = Usage(finished.prompt_ids, finished.completion_ids, finished.cached_ids)
        return Frame(done=True, finish_reason=reason, extras=Extras(usage=usage))


def _call(call: CallClosed) -> ToolCall:
    """A call in Codec's form: `arguments_json` holds name and arguments, however the model wrote them."""
    return ToolCall(f'{{"name":{json.dumps(call.name)},"arguments":{call.arguments}}}', call.name, call.id)


# Ids wait for each other as long as the policy allows; a task of its own keeps the time, since there may be no further
# event at which to check it. A client that does not read slows the generation down until its connection ends.

_ERRORS: Final = ApiForm(error_answer)
_GRAIN: Final = 0.001
"""Seconds by which the loop's timer may fire early; what is due that soon leaves at once."""
_BESIDE: Final = 4096
"""Bytes from which on a thread compresses: brotli needs a second for 128,000 ids, and other requests must go on."""


class FramePump:
    """Frames in, bytes out, for one response. Timers are asyncio's own: anyio's cost some 30 µs more a flush."""

    def __init__(self, wire: Wire, visible: Visible, send: Send) -> None:
        self._gate = FlushGate(wire.policy)
        self._writer = FrameWriter(wire.format)
        self._encoder = open_encoder(wire.choice.coding, wire.dictionary, wire.choice.effort)
        self._headers = wire.headers(visible)
        self._send = send
        self._lock = anyio.Lock(fast_acquire=True)
        self._loop = asyncio.get_running_loop()
        self._ring = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._frames = 0
        self.begun = False
        self.sent = 0
        """Bytes of the body so far."""
        self.plain = 0
        """Bytes of the body so far, before compression."""
        self.ids = 0
        """Ids sent so far that the model wrote, including those of regions."""

    async def put(self, frame: Frame) -> None:
        """Take a frame, and send it now or when the policy says."""
        now = self._loop.time()
        due = self._gate.feed(frame, now) or self._gate.tick(now + _GRAIN)
        if due:
            # An id that comes just before the timer fires takes the waiting ones along: one wake-up instead of two.
            self._stop_timer()
            await self._leave(due)
        elif self._timer is None:
            self._set_timer()

    async def keep_time(self) -> None:
        """Send what has waited long enough. Runs beside the answer, until cancelled."""
        try:
            while True:
                await self._ring.wait()
                self._ring.clear()
                if due := self._gate.tick(self._loop.time() + _GRAIN):
                    await self._leave(due)
                # What waited may have left with other ids in the meantime, and others may wait by now.
                self._stop_timer()
                self._set_timer()
        finally:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        deadline = self._gate.deadline
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._ring.set)

    async def _leave(self, frames: Sequence[Frame]) -> None:
        # All or nothing, even if the task is cancelled: after a gap, the frame that says why could not be read.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                data = b"".join([self._writer.write(self._numbered(frame)) for frame in frames])
                done = frames[-1].done
                body = await self._encoded(data, done=done)
                self.plain += len(data)
                self.ids += sum(len(frame.ids) + len(frame.extras.region_ids) for frame in frames)
                self.sent += len(body)
                if not self.begun:
                    self.begun = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
                await self._send({"type": "http.response.body", "body": body, "more_body": not done})

    async def _encoded(self, data: bytes, *, done: bool) -> bytes:
        def encode() -> bytes:
            return self._encoder.write(data) + (self._encoder.close() if done else self._encoder.flush())

        return encode() if len(data) < _BESIDE else await anyio.to_thread.run_sync(encode)

    def _numbered(self, frame: Frame) -> Frame:
        """Number a frame that says more than ids: the last frame's number tells a client whether it has all frames."""
        number, self._frames = self._frames, self._frames + 1
        return frame if frame.is_plain else replace(frame, extras=replace(frame.extras, seq=number))


class FramedAnswer(Response):
    """The answer as a stream of frames."""

    def __init__(
        self,
        answering: Answering,
        reply: FrameReply,
        wire: Wire,
        visible: Visible,
        metrics: WireMetrics,
        *,
        json_event: int,
    ) -> None:
        """`json_event`: bytes of the JSON event that would carry one step of the model, without its text."""
        self._answering = answering
        self._reply = reply
        self._wire = wire
        self._visible = visible
        self._metrics = metrics
        self._json_event = json_event
        self._steps = 0
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send frames until one says `done`. A failure before the first frame is an HTTP error, a later one a frame."""
        pump = FramePump(self._wire, self._visible, send)
        try:
            failure = await self._answer(pump, scope, receive)
            if self._answering.client_left:
                return
            if failure is not None and not pump.begun:
                await _ERRORS.refused(failure)(scope, receive, send)
            elif failure is not None:
                for frame in self._reply.fail(error_answer(failure)[1]["error"]["message"]):
                    await pump.put(frame)
        finally:
            self._count(pump)

    def _count(self, pump: FramePump) -> None:
        weight = {"sent": pump.sent, "plain": pump.plain, "ids": pump.ids, "as_json": self._steps * self._json_event}
        self._metrics.stream(self._wire.format, self._wire.choice.coding, self._wire.choice.reason, **weight)

    async def _answer(self, pump: FramePump, scope: Scope, receive: Receive) -> Exception | None:
        async def show(event: AgentEvent) -> None:
            # The size of the same answer in JSON is estimated from the number of its events: making the JSON in order
            # to measure it would cost more than sending it.
            self._steps += isinstance(event, IdsGenerated)
            for frame in self._reply.feed(event):
                await pump.put(frame)

        return await self._answering.run(scope, receive, show, beside=pump.keep_time)


VERSION_HEADER = "codec-client-version"


@dataclass(frozen=True, slots=True)
class FrameResponder:
    """Makes responses that consist of frames."""

    offer: WireOffer
    metrics: WireMetrics
    minimum_version: str | None = None
    """Clients of an older Codec version are refused; None: none are."""

    def respond(
        self,
        request: Request,
        fields: GenerationFields,
        answering: Answering,
        token_map: TokenMap,
        prompt_ids: Sequence[int],
        *,
        expected_ids: int | None = None,
        name_calls: bool,
        json_event: int,
    ) -> Response:
        """Answer with frames.

        Args:
            request: its headers decide on the coding and on the response's headers.
            fields: its body, which asked for frames.
            answering: makes the answer.
            token_map: the engine's.
            prompt_ids: sent in the first frame if the client asked for token ids.
            expected_ids: the most ids that the stream may have; None if unknown.
            name_calls: whether the calls are found here, by their markers; False: another parser finds them.
            json_event: bytes of the JSON event that a frame replaces, without its text (`event_bytes`).

        Raises:
            ValueError: `fields` asks for JSON.
        """
        if fields.stream_format == "json":
            raise ValueError("the request asks for JSON")
        version = read_version(request.headers.get(VERSION_HEADER))
        if self.minimum_version is not None and version < read_version(self.minimum_version):
            return too_old(version, self.minimum_version)
        wire = self.offer.wire(
            fields.stream_format,
            fields.stream_flush,
            token_map.map_id,
            accept_encoding=request.headers.get("accept-encoding"),
            expected_ids=expected_ids,
        )
        markers = watched_ids(fields.watched, token_map)
        reply = FrameReply(
            prompt_ids=prompt_ids if fields.return_token_ids else (),
            regions=None if markers is None else Regions(markers, token_map, name_calls=name_calls),
        )
        return FramedAnswer(answering, reply, wire, Visible(version), self.metrics, json_event=json_event)


def too_old(version: tuple[int, int], minimum: str) -> Response:
    """The answer that tells a client which version is required, in the form that Codec defines (codec.md A.5)."""
    said = f"{version[0]}.{version[1]}"
    body: dict[str, object] = {
        "error": "codec_version_required",
        "minimum_version": minimum,
        "required_features": [],
        "client_version": said,
    }
    return JSONResponse(body, 426, {"codec-min-version": minimum, "upgrade": f"codec/{minimum}", "vary": VARY})
