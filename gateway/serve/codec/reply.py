"""An agent's events as frames: the model's context in order, id by id, for a client that rebuilds it.

`ids` are those that the model wrote; spliced ids go into the additive fields, with their source (only generated ids are
`ids`; `done` comes once, after the last turn). Text events are skipped; calls that were found are named. Pure: no
clock, no bytes. `leaf_sdk.wire` encodes the frames.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from gateway.agent.events import AgentEvent, Finished, GenerationFinished, IdsGenerated, IdsSpliced
from gateway.observe.escape import cut_text
from gateway.serve.generation.watch import Regions
from gateway.toolcalls import CallClosed
from leaf_sdk.wire import Extras, Frame, Spliced, ToolCall, Usage

_REASONS = {"stop": "eos_token", "length": "length", "tool_calls": "tool_calls"}
_ERROR_TEXT = 1000
"""The most characters of an error's message that a frame carries."""


class FrameReply:
    """The reply to one request."""

    def __init__(self, *, prompt_ids: Sequence[int] = (), regions: Regions | None = None) -> None:
        """`prompt_ids`: sent in the first frame. `regions`: puts the ids of calls apart; None: they stay in `ids`."""
        self._prompt = tuple(prompt_ids)
        self._regions = regions
        self._cut = False

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
                # The engine's timings are missing if a stop string ended the generation.
                self._cut = event.timings is None
                return self._open_region()
            case Finished():
                return [self._last(event)]
            case _:
                return []

    def _open_region(self) -> list[Frame]:
        return [] if self._regions is None else self._regions.flush()

    def _last(self, finished: Finished) -> Frame:
        reason = "stop_sequence" if finished.reason == "stop" and self._cut else _REASONS[finished.reason]
        usage = Usage(finished.prompt_ids, finished.completion_ids, finished.cached_ids)
        return Frame(done=True, finish_reason=reason, extras=Extras(usage=usage))


def _call(call: CallClosed) -> ToolCall:
    """A call in Codec's form: `arguments_json` holds name and arguments, however the model wrote them."""
    return ToolCall(f'{{"name":{json.dumps(call.name)},"arguments":{call.arguments}}}', call.name, call.id)
