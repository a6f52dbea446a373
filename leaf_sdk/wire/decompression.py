"""Compressed bodies, in pieces of any size, to what was written, up to a limit.

A decoder returns everything that its bytes make readable, and stops before it exceeds the limit, so that a small body
can't fill the memory. Damage, an early end and bytes after the end are errors. The reverse is `compression`.
"""

import zlib
from typing import Any, Final, Protocol, cast

from leaf_sdk.errors import BodyInvalid, BodyTooLarge

from .compression import GZIP_WINDOW, Coding, brotli_module, unavailable
from .dictionary import Dictionary

MAX_BODY: Final = 16 * 2**20
"""The bytes that a body may decompress to, unless the caller names another limit."""
_WINDOW_LOG: Final = 23
"""A zstd frame may ask for this much memory, 8 MiB: what RFC 8878 has every decoder support."""


class _Inflater(Protocol):
    """One library's decompressor behind a common interface."""

    errors: tuple[type[Exception], ...]

    def take(self, data: bytes, room: int) -> bytes:
        """Return at most about `room` bytes; everything that is readable if that is less."""
        ...

    def ended(self) -> bool: ...

    def rest(self) -> bytes:
        """The bytes after the end."""
        ...


class Decoder:
    """Decompresses one body."""

    def __init__(self, coding: Coding, max_bytes: int = MAX_BODY, dictionary: Dictionary | None = None) -> None:
        self._coding: Final = coding
        self._max_bytes: Final = max_bytes
        self._inflater = _inflater(coding, dictionary)
        self._given = 0
        self._failed = False

    def feed(self, data: bytes) -> bytes:
        """Return what these bytes make readable.

        Raises:
            BodyTooLarge: more than `max_bytes` in all.
            BodyInvalid: the bytes are damaged, in another coding, made with another dictionary, or follow the end.
        """
        if self._failed:
            raise BodyInvalid(f"the {self._coding} body could not be decompressed earlier; open a new decoder")
        if not data:
            return b""
        self._failed = True
        try:
            room = self._max_bytes - self._given + 1
            out = self._inflater.take(data, room)
        except self._inflater.errors as error:
            raise BodyInvalid(f"the {self._coding} body is damaged, or not in this coding ({error})") from error
        self._given += len(out)
        if self._given > self._max_bytes:
            raise BodyTooLarge(self._max_bytes)
        if self._inflater.rest():
            raise BodyInvalid(f"{len(self._inflater.rest())} bytes follow the end of the {self._coding} body")
        self._failed = False
        return out

    def close(self) -> bytes:
        """End the body; returns b"", as `feed` holds nothing back. Raises `BodyInvalid`: the body is not complete."""
        if self._failed or not self._inflater.ended():
            raise BodyInvalid(f"the {self._coding} body ends early, after {self._given} bytes; request it again")
        return b""


class _Identity:
    errors: tuple[type[Exception], ...] = ()

    def take(self, data: bytes, room: int) -> bytes:
        return data[:room]

    def ended(self) -> bool:
        return True

    def rest(self) -> bytes:
        return b""


class _Gzip:
    errors: tuple[type[Exception], ...] = (zlib.error,)

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(GZIP_WINDOW)

    def take(self, data: bytes, room: int) -> bytes:
        return self._stream.decompress(data, room)

    def ended(self) -> bool:
        return self._stream.eof

    def rest(self) -> bytes:
        return self._stream.unused_data


class _Brotli:
    def __init__(self) -> None:
        library = brotli_module()
        self.errors: tuple[type[Exception], ...] = (cast("type[Exception]", library.error),)
        self._stream: Any = library.Decompressor()

    def take(self, data: bytes, room: int) -> bytes:
        out = cast("bytes", self._stream.process(data, output_buffer_limit=room))
        while len(out) < room and not self._stream.can_accept_more_data():
            out += cast("bytes", self._stream.process(b"", output_buffer_limit=room - len(out)))
        return out

    def ended(self) -> bool:
        return cast("bool", self._stream.is_finished())

    def rest(self) -> bytes:
        return b""


class _Zstd:
    def __init__(self, dictionary: Dictionary | None) -> None:
        from .zstandard import DecompressionParameter, ZstdDecompressor, ZstdError

        self.errors: tuple[type[Exception], ...] = (ZstdError, EOFError)
        loaded = None if dictionary is None else dictionary.loaded
        self._stream = ZstdDecompressor(loaded, {DecompressionParameter.window_log_max: _WINDOW_LOG})

    def take(self, data: bytes, room: int) -> bytes:
        return self._stream.decompress(data, room)

    def ended(self) -> bool:
        return self._stream.eof

    def rest(self) -> bytes:
        return self._stream.unused_data if self._stream.eof else b""


def _inflater(coding: Coding, dictionary: Dictionary | None) -> _Inflater:
    try:
        match coding:
            case "identity":
                return _Identity()
            case "gzip":
                return _Gzip()
            case "br":
                return _Brotli()
            case "zstd":
                return _Zstd(dictionary)
    except ImportError as error:
        raise unavailable(coding) from error
    raise unavailable(coding)
