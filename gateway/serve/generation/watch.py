"""Tool-call regions found in a stream of ids, without loss: every id comes out once, inside a region or outside.

The gateway's `ToolWatcher` gives the bodies of calls only; here the markers and everything between them are kept
unchanged, since the client rebuilds the model's context from them. Frames name the calls where they can be read. Pure.
Source: Codec v0.5, `tool_watcher` in its two shapes (an object of ids; a flag with two texts).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.toolcalls.stream.watcher import REGION_CAP
from leaf_sdk.vocab import TokenMap
from leaf_sdk.wire import Extras, Frame, ToolCall

DEFAULT_START: Final = "<tool_call>"
DEFAULT_END: Final = "</tool_call>"


@dataclass(frozen=True, slots=True)
class WatchIds:
    """Markers by their ids."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WatchTexts:
    """Markers by their texts."""

    start: str
    end: str


def resolve(watched: WatchIds | WatchTexts | None, token_map: TokenMap) -> WatchIds | None:
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
