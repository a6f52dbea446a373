"""Frames as protobuf messages, each after its length in 4 bytes, big-endian.

What is written is canonical: fields in order, defaults left out. Both spellings of `done: false` are read, and so are
ids that are not packed. Imported when first used: the library belongs to the extra `wire`. Source: Codec v0.5 and the
protobuf encoding.
"""

from typing import Final

from google.protobuf.message import DecodeError

from leaf_sdk.errors import FrameInvalid, FrameTooLarge

from . import codec_pb2 as pb
from .frame import NO_EXTRAS, Extras, Frame, Limits, Spliced, ToolCall, Usage
from .wide import WideFrame

_PREFIX: Final = 4
_IDS_TAG: Final = 0x0A
_BY_HAND: Final = 26
"""Payloads up to this length, of a dozen ids and nothing else, are read without protobuf."""


def write_protobuf(frame: Frame) -> bytes:
    """Return a frame's bytes, preceded by its length. Raises `ValueError`: an id that is negative or over 2**32 - 1."""
    message = pb.CodecFrame(ids=frame.ids)
    if frame.done:
        message.done = True
    if frame.finish_reason is not None:
        message.finish_reason = frame.finish_reason
    for call in frame.tool_calls:
        message.tool_calls.add(name=call.name, arguments_json=call.arguments_json, id=call.id)
    if frame.extras is not NO_EXTRAS:
        _write_extras(frame.extras, message)
    payload = message.SerializeToString()
    return len(payload).to_bytes(_PREFIX, "big") + payload


def _write_extras(extras: Extras, message: pb.CodecFrame) -> None:
    message.x_region_ids.extend(extras.region_ids)
    message.x_prompt_ids.extend(extras.prompt_ids)
    for part in extras.spliced:
        message.x_spliced.add(ids=part.ids, source=part.source, call_id=part.call_id)
    if extras.error is not None:
        message.x_error = extras.error
    if extras.seq is not None:
        message.x_seq = extras.seq
    if extras.usage is not None:
        usage = extras.usage
        message.x_usage.prompt_tokens = usage.prompt_tokens
        message.x_usage.completion_tokens = usage.completion_tokens
        message.x_usage.SetInParent()
        if usage.cached_tokens is not None:
            message.x_usage.cached_tokens = usage.cached_tokens


class MessageReader:
    """Cuts a stream into messages and makes a frame from each."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._needed = _PREFIX
        self.offset = 0
        """The byte at which the next or unfinished frame starts."""

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame have arrived."""
        return len(self._buffer)

    def feed(self, data: bytes, frames: list[Frame]) -> None:
        """Add the frames that these bytes complete to the list, up to the one that says `done`.

        Raises:
            FrameInvalid: not a frame; those before it are in the list.
            FrameTooLarge: over a limit, even if only its length has arrived.
        """
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data = bytes(self._buffer)
        at, end = 0, len(data)
        while end - at >= _PREFIX:
            stop = at + self._size(data, at)
            if stop > end:
                break
            frame = self._read(data[at + _PREFIX : stop])
            frames.append(frame)
            self.offset += stop - at
            at = stop
            if frame.done:
                return
        self._buffer = bytearray(data[at:])
        # A frame that arrives in small pieces is put together once, not with every piece.
        self._needed = self._size(data, at) if end - at >= _PREFIX else _PREFIX

    def _size(self, data: bytes, at: int) -> int:
        size = int.from_bytes(data[at : at + _PREFIX], "big")
        if size > self._limits.frame_bytes:
            raise self._too_large(f"claims {size} bytes, expected at most {self._limits.frame_bytes}")
        return _PREFIX + size

    def _read(self, payload: bytes) -> Frame:
        ids = _plain_ids(payload)
        if ids is not None and len(ids) <= self._limits.ids and max(ids, default=0) <= self._limits.largest_id:
            return Frame(ids)
        try:
            message = WideFrame.FromString(payload)
        except DecodeError as error:
            what = f"the frame at byte {self.offset} is not a CodecFrame ({error})"
            raise FrameInvalid(f"{what}; check the response's Content-Type", offset=self.offset) from error
        for name, parts in (("tool_calls", message.tool_calls), ("x_spliced", message.x_spliced)):
            if len(parts) > self._limits.parts:
                raise self._too_large(f"holds {len(parts)} {name}, expected at most {self._limits.parts}")
        for ids in (message.ids, message.x_region_ids, message.x_prompt_ids, *(p.ids for p in message.x_spliced)):
            if len(ids) > self._limits.ids:
                raise self._too_large(f"holds {len(ids)} ids, expected at most {self._limits.ids}")
            if ids and max(ids) > self._limits.largest_id:
                raise self._too_large(f"holds id {max(ids)!r}, expected at most {self._limits.largest_id}")
        return _frame(message)

    def _too_large(self, what: str) -> FrameTooLarge:
        message = f"the frame at byte {self.offset} {what}; raise the limit if you trust the sender"
        return FrameTooLarge(message, offset=self.offset)


def _plain_ids(payload: bytes) -> tuple[int, ...] | None:
    """Read a message that is one list of packed ids, as plain frames are; None if it may be anything else."""
    if len(payload) < 2 or payload[0] != _IDS_TAG:
        return None
    if len(payload) <= _BY_HAND:
        return _varints(payload[2:]) if payload[1] == len(payload) - 2 else None
    head = next((at for at in range(1, 6) if payload[at] < 0x80), 6) + 1
    size = _varints(payload[1:head])
    if size is None or size[0] != len(payload) - head:
        return None
    try:
        return tuple(WideFrame.FromString(payload).ids)
    except DecodeError:
        return None


def _varints(packed: bytes) -> tuple[int, ...] | None:
    """Read a few packed ids, for which parsing a message would cost ten times as much; None if one is cut off."""
    ids: list[int] = []
    token = shift = 0
    for byte in packed:
        token |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            ids.append(token)
            token = shift = 0
    return None if shift else tuple(ids)


def _frame(message: pb.CodecFrame) -> Frame:
    calls = tuple(
        ToolCall(
            call.arguments_json, call.name if call.HasField("name") else None, call.id if call.HasField("id") else None
        )
        for call in message.tool_calls
    )
    reason = message.finish_reason if message.HasField("finish_reason") else None
    return Frame(tuple(message.ids), message.done, reason, calls, _read_extras(message))


def _read_extras(message: pb.CodecFrame) -> Extras:
    usage = message.x_usage
    extras = Extras(
        region_ids=tuple(message.x_region_ids),
        spliced=tuple(
            Spliced(tuple(part.ids), part.source, part.call_id if part.HasField("call_id") else None)
            for part in message.x_spliced
        ),
        usage=None
        if not message.HasField("x_usage")
        else Usage(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cached_tokens if usage.HasField("cached_tokens") else None,
        ),
        error=message.x_error if message.HasField("x_error") else None,
        seq=message.x_seq if message.HasField("x_seq") else None,
        prompt_ids=tuple(message.x_prompt_ids),
    )
    return NO_EXTRAS if extras == NO_EXTRAS else extras
