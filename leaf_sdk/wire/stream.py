"""The two ends of a stream of frames: frames to bytes, and bytes, in pieces of any size, to frames.

They enforce the rules that hold in every format: nothing follows the frame that says `done`, a stream that ends without
one is an error, and a reader that failed stays failed. Compression, flushing and sockets are left to other modules.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Final, Literal, Protocol

from leaf_sdk.errors import FormatUnavailable, FrameError, FrameInvalid, FrameTruncated

from .frame import DEFAULT_LIMITS, Frame, Limits
from .msgpack_frames import MapReader, write_msgpack

Format = Literal["msgpack", "protobuf"]
"""What `stream_format` may name, besides "json"."""

MEDIA_TYPES: Final[dict[Format, str]] = {
    "msgpack": "application/x-msgpack",
    "protobuf": "application/x-protobuf",
}


class _Parser(Protocol):
    offset: int

    @property
    def pending(self) -> int: ...

    def feed(self, data: bytes, frames: list[Frame]) -> None: ...


class FrameWriter:
    """Writes one stream. Raises `FormatUnavailable` for a format that can't be used here."""

    def __init__(self, form: Format) -> None:
        self.format: Final = form
        self._write = _writer(form)
        self._written = 0
        self.done = False
        """Whether the last frame has been written."""

    def write(self, frame: Frame) -> bytes:
        """Return a frame's bytes.

        Raises:
            FrameInvalid: an id is out of range, or a frame that says `done` has been written. The stream continues as
                if this frame had not been passed.
        """
        if self.done:
            raise FrameInvalid(
                f"{frame!r:.200} comes after a frame that says done; open a new stream", offset=self._written
            )
        try:
            data = self._write(frame)
        except (ValueError, OverflowError, TypeError) as error:
            raise FrameInvalid(f"{frame!r:.200} can't be written: {error}", offset=self._written) from error
        self._written += len(data)
        self.done = frame.done
        return data


class FrameReader:
    """Reads one stream; raises `FormatUnavailable` as the writer does.

    Frames before a fault are returned first; the next call raises.
    """

    def __init__(self, form: Format, limits: Limits = DEFAULT_LIMITS) -> None:
        self.format: Final = form
        self._parser = _parser(form, limits)
        self._error: FrameError | None = None
        self.done = False
        """Whether the last frame has arrived. What follows it is ignored."""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete.

        Raises:
            FrameInvalid: the bytes are not a frame.
            FrameTooLarge: a frame is over a limit.
        """
        if self._error is not None:
            raise self._error
        frames: list[Frame] = []
        if self.done:
            return frames
        try:
            self._parser.feed(data, frames)
        except FrameError as error:
            self._error = error
            if not frames:
                raise
        self.done = bool(frames) and frames[-1].done
        return frames

    def close(self) -> list[Frame]:
        """End the stream; returns no frames, as none can be left.

        Raises:
            FrameTruncated: the stream ends inside a frame, or before a frame said `done`.
            FrameError: the fault that a `feed` did not raise yet.
        """
        if self._error is not None:
            raise self._error
        if self.done:
            return []
        end = self._parser.offset + self._parser.pending
        where = "before a frame that says done"
        if self._parser.pending:
            where = f"inside the frame that starts at byte {self._parser.offset}"
        self._error = FrameTruncated(
            f"the {self.format} stream ends at byte {end}, {where}; the connection was lost: send the request again",
            offset=end,
        )
        raise self._error


def available_formats() -> tuple[Format, ...]:
    """Return the formats that can be used here: all of them where the extra `wire` is installed.

    protobuf takes a tenth of a second to import: a server that calls this at its start spares its first client that.
    """
    return tuple(form for form in MEDIA_TYPES if _opens(form))


def _opens(form: Format) -> bool:
    try:
        _writer(form)
    except FormatUnavailable:
        return False
    return True


def _writer(form: Format) -> Callable[[Frame], bytes]:
    match form:
        case "msgpack":
            return write_msgpack
        case "protobuf":
            return _protobuf_frames().write_protobuf
    raise _unavailable(form)


def _parser(form: Format, limits: Limits) -> _Parser:
    match form:
        case "msgpack":
            return MapReader(limits)
        case "protobuf":
            return _protobuf_frames().MessageReader(limits)
    raise _unavailable(form)


def _protobuf_frames() -> ModuleType:
    try:
        from . import protobuf_frames
    except ImportError as error:
        raise _unavailable("protobuf") from error
    return protobuf_frames


def _unavailable(form: str) -> FormatUnavailable:
    return FormatUnavailable(
        f"the stream format {form!r:.40} can't be used here, expected one of {', '.join(MEDIA_TYPES)}; "
        "protobuf needs codec-leaf[wire]",
        offset=0,
    )
