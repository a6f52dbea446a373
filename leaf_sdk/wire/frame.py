"""What one frame of a token stream holds, in any encoding: plain data, and the rule by which two become one.

A frame carries the ids that the model generated. Our own additions, which other readers skip, carry the rest of the
model's context, so that a client can rebuild it id by id. Knows no encoding: `msgpack_frames` and
`protobuf_frames` turn frames into bytes. Source: Codec v0.5; the additions are described in `codec.proto`.
"""

from dataclasses import dataclass, replace
from typing import Final

MAX_ID: Final = 2**32 - 1
"""The largest id that a frame can carry."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the server found in the stream."""

    arguments_json: str
    """The whole trimmed text between the markers, not just the arguments."""
    name: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Spliced:
    """Ids in the model's context that the model did not generate."""

    ids: tuple[int, ...]
    source: str
    """"leaf" (the tool's own ids), "shim" (tokenized for it) or "scaffold" (the chat template's)."""
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted over the whole request."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    """The part of the prompt that was in the engine's cache."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What we add to a frame. All of it may be skipped."""

    region_ids: tuple[int, ...] = ()
    """The ids of tool-call regions, including their markers; they are not among the frame's `ids`."""
    spliced: tuple[Spliced, ...] = ()
    usage: Usage | None = None
    error: str | None = None
    """Why the stream ends with finish_reason "error"."""
    seq: int | None = None
    """The number of the frame in its stream, from 0. Set by the stream's writer, after frames have been merged."""
    prompt_ids: tuple[int, ...] = ()


NO_EXTRAS: Final = Extras()


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. Its ids are in the model's context in this order: prompt_ids, ids, region_ids, spliced."""

    ids: tuple[int, ...] = ()
    done: bool = False
    finish_reason: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    extras: Extras = NO_EXTRAS

    @property
    def is_plain(self) -> bool:
        """Whether the frame holds nothing but ids and is not the last."""
        if self.done or self.tool_calls or self.finish_reason is not None:
            return False
        return self.extras is NO_EXTRAS or self.extras == NO_EXTRAS  # equality alone would cost more than writing ids

    @property
    def context_ids(self) -> tuple[int, ...]:
        """The ids that the frame adds to the model's context, in order."""
        spliced = tuple(token for part in self.extras.spliced for token in part.ids)
        return self.extras.prompt_ids + self.ids + self.extras.region_ids + spliced


def merge(earlier: Frame, later: Frame) -> Frame | None:
    """Make one frame of two consecutive ones; None if the order of the ids would be lost."""
    if not earlier.is_plain or later.extras.prompt_ids:
        return None
    return replace(later, ids=earlier.ids + later.ids)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader accepts before it gives up. Every count is for one frame."""

    frame_bytes: int = 2 * 2**20
    ids: int = 2**18
    """The length of any single list of ids."""
    parts: int = 2**10
    """The number of tool calls, and of spliced parts."""
    largest_id: int = MAX_ID


DEFAULT_LIMITS: Final = Limits()
