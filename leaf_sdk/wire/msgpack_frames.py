"""Frames as msgpack maps, one after the other, with nothing between them and no length before them.

Plain frames are put together from their fixed bytes, which is several times faster than packing an object; all others
are packed. A reader keeps what a frame may claim within limits, and says at which byte of the stream a bad frame
starts. Source: Codec v0.5.
"""

from typing import TYPE_CHECKING, Any, Final, cast

import msgpack

from leaf_sdk.errors import FrameInvalid, FrameTooLarge

from .fields import FieldInvalid, Fields, FieldTooLarge, read_frame, read_ids, refuse, write_fields
from .frame import MAX_ID, Frame, Limits

if TYPE_CHECKING:
    from collections.abc import Callable

_msgpack = cast("Any", msgpack)  # it has no types
pack: Final = cast("Callable[[object], bytes]", _msgpack.Packer().pack)
_unpack: Final = cast("Callable[[bytes], object]", _msgpack.unpackb)
_NESTED: Final = 1024
"""The most keys that a map may have. No map of a frame has more than ten, but unknown fields may hold anything."""

PLAIN_HEAD: Final = b"\x82\xa3ids"
PLAIN_TAIL: Final = b"\xa4done\xc2"


def write_msgpack(frame: Frame) -> bytes:
    """Return a frame's bytes. Raises `ValueError`: an id that is negative or over 2**32 - 1."""
    ids = frame.ids
    if ids and not 0 <= min(ids) <= max(ids) <= MAX_ID:
        raise ValueError(f"ids range from {min(ids)!r} to {max(ids)!r}, expected 0 to {MAX_ID}")
    if frame.is_plain:
        return PLAIN_HEAD + pack(ids) + PLAIN_TAIL
    return pack(write_fields(frame, {"ids": ids}))


def _read_msgpack(fields: Fields, limits: Limits) -> Frame:
    """Make a frame from one map. Raises `FieldInvalid`: a field is missing or of another type."""
    return read_frame(fields, read_ids(fields.get("ids"), "ids", limits), limits)


def _read_plain(data: bytes, limits: Limits) -> Frame | None:
    """Make a frame from bytes that are one plain frame in the usual spelling; None if they may be anything else."""
    if not (data.startswith(PLAIN_HEAD) and data.endswith(PLAIN_TAIL)) or len(data) > limits.frame_bytes:
        return None
    try:
        return Frame(read_ids(_unpack(data[len(PLAIN_HEAD) : -len(PLAIN_TAIL)]), "ids", limits))
    except (ValueError, TypeError, RecursionError):
        return None


class MapReader:
    """Cuts a stream into msgpack maps and makes a frame from each."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._fed: int = 0
        self.offset: int = 0
        """The byte at which the next or unfinished frame starts."""
        self._skipped: int = 0
        """The bytes that were read without the unpacker."""
        self._unpacker = _msgpack.Unpacker(
            max_buffer_size=2 * limits.frame_bytes,
            max_array_len=limits.ids,
            max_map_len=_NESTED,
            strict_map_key=False,
        )

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame have arrived."""
        return self._fed - self.offset

    def feed(self, data: bytes, frames: list[Frame]) -> None:
        """Add the frames that these bytes complete to the list, up to the one that says `done`.

        Raises:
            FrameInvalid: not a frame; those before it are in the list.
            FrameTooLarge: over a limit.
        """
        if self._fed == self.offset and (frame := _read_plain(data, self._limits)) is not None:
            frames.append(frame)
            self._skipped += len(data)
            self._fed += len(data)
            self.offset += len(data)
            return
        step = self._limits.frame_bytes  # so that the unpacker's buffer holds less than two frames of the largest size
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            self._unpacker.feed(piece)
            self._fed += len(piece)
            self._take(frames)
            if frames and frames[-1].done:
                return
            if self.pending > step:
                raise self._too_large(f"goes on for more than {step} bytes")

    def _take(self, frames: list[Frame]) -> None:
        try:
            for fields in self._unpacker:
                end = self._skipped + cast("int", self._unpacker.tell())
                if end - self.offset > self._limits.frame_bytes:
                    raise self._too_large(f"is {end - self.offset} bytes long")
                if fields.__class__ is not dict:
                    refuse("the frame", fields, "a map")
                frame = _read_msgpack(fields, self._limits)
                self.offset = end
                frames.append(frame)
                if frame.done:
                    return
        except FieldTooLarge as error:
            raise self._too_large(f"is over a limit: {error}") from error
        except FieldInvalid as error:
            raise FrameInvalid(f"the frame at byte {self.offset}: {error}", offset=self.offset) from error
        except (ValueError, TypeError, RecursionError) as error:  # all of msgpack's own errors
            if "exceeds max_" in str(error):
                raise self._too_large(f"is over a limit: {error}") from error
            message = f"at byte {self.offset} there is no msgpack map ({error or type(error).__name__})"
            raise FrameInvalid(f"{message}; check the response's Content-Type", offset=self.offset) from error

    def _too_large(self, what: str) -> FrameTooLarge:
        return FrameTooLarge(
            f"the frame at byte {self.offset} {what}; raise the limit if you trust the sender", offset=self.offset
        )
