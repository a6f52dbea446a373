"""Bodies to compressed bodies that stream: what was written before a `flush` can be read as soon as its bytes arrive.

One encoder serves one body, in one context from its first byte to its last; every flush costs some bytes. Knows no
headers and no policy: `choose` picks a coding and `flush` says when to flush. brotli and zstd belong to the extra
`wire` and are imported when first used. The reverse is `decompression`.
"""

import zlib
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast, get_args

from leaf_sdk.errors import CodingUnavailable

from .dictionary import Dictionary

if TYPE_CHECKING:
    from collections.abc import Callable

Coding = Literal["identity", "gzip", "br", "zstd"]
"""What `Content-Encoding` may name."""
CODINGS: Final[tuple[Coding, ...]] = get_args(Coding)

GZIP_WINDOW: Final = 31
"""zlib's number for its largest window, with a gzip header and trailer."""
_WINDOW_LOG: Final = 17
"""128 KiB of history for br and zstd: a long stream has no more, and an encoder's memory grows with the window."""

Effort = Literal["streaming", "whole"]
"""What an encoder is tuned for: many flushes, or a body that is flushed a few times at most."""
_LEVELS: Final[dict[Effort, dict[Coding, int]]] = {
    "streaming": {"gzip": 6, "br": 5, "zstd": 3},
    "whole": {"gzip": 6, "br": 11, "zstd": 19},
}
"""By measurement (`make bench-wire`). Between flushes the highest levels find next to nothing more and cost up to 40
times as much CPU; on whole frames they cost some microseconds per token. On JSON text br takes 40 times that."""


class Encoder(Protocol):
    """Compresses one body."""

    def write(self, data: bytes, /) -> bytes:
        """Take the next bytes, and return what happens to be ready: often nothing."""
        ...

    def flush(self) -> bytes:
        """Return what makes everything written so far readable."""
        ...

    def close(self) -> bytes:
        """Return the end of the body."""
        ...


class _Identity:
    def write(self, data: bytes) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""

    def close(self) -> bytes:
        return b""


class _Gzip:
    def __init__(self, level: int) -> None:
        stream = zlib.compressobj(level, zlib.DEFLATED, GZIP_WINDOW)
        self.write = stream.compress
        self._flush = stream.flush
        self.close = stream.flush

    def flush(self) -> bytes:
        # After a partial flush everything can be read, as after a sync flush; it takes 10 bits, that one 5 bytes.
        return self._flush(zlib.Z_PARTIAL_FLUSH)


class _Brotli:
    def __init__(self, level: int) -> None:
        stream = brotli_module().Compressor(quality=level, lgwin=_WINDOW_LOG)
        self.write = cast("Callable[[bytes], bytes]", stream.process)
        self.flush = cast("Callable[[], bytes]", stream.flush)
        self.close = cast("Callable[[], bytes]", stream.finish)


class _Zstd:
    def __init__(self, level: int, dictionary: Dictionary | None) -> None:
        from .zstandard import CompressionParameter, ZstdCompressor

        options: dict[int, int] = {
            CompressionParameter.compression_level: level,
            CompressionParameter.window_log: _WINDOW_LOG,
            CompressionParameter.checksum_flag: 0,
            CompressionParameter.dict_id_flag: 0,
        }
        if level == _LEVELS["whole"]["zstd"]:
            # By default, it takes 80 MB per stream for its tables, whatever the window.
            options |= {CompressionParameter.hash_log: _WINDOW_LOG, CompressionParameter.chain_log: _WINDOW_LOG}
        loaded = None if dictionary is None else dictionary.loaded
        self._stream = ZstdCompressor(options=options, zstd_dict=loaded)
        self.write = self._stream.compress
        self.close = self._stream.flush

    def flush(self) -> bytes:
        return self._stream.flush(self._stream.FLUSH_BLOCK)


def open_encoder(coding: Coding, dictionary: Dictionary | None = None, effort: Effort = "streaming") -> Encoder:
    """Begin a body in a coding. The dictionary is for zstd, which also works without one; other codings ignore it.

    Raises:
        CodingUnavailable: unknown, or its library is not installed.
    """
    try:
        match coding:
            case "identity":
                return _Identity()
            case "gzip":
                return _Gzip(_LEVELS[effort]["gzip"])
            case "br":
                return _Brotli(_LEVELS[effort]["br"])
            case "zstd":
                return _Zstd(_LEVELS[effort]["zstd"], dictionary)
    except ImportError as error:
        raise unavailable(coding) from error
    raise unavailable(coding)


def available_codings() -> tuple[Coding, ...]:
    """Return the codings that can be used here: all of them where the extra `wire` is installed."""
    return tuple(coding for coding in CODINGS if _opens(coding))


def unavailable(coding: str) -> CodingUnavailable:
    """Make the error for a coding that can't be used here."""
    return CodingUnavailable(
        f"the content coding {coding!r:.40} can't be used here, expected one of {', '.join(CODINGS)}; "
        "br and zstd need codec-leaf[wire]"
    )


def _opens(coding: Coding) -> bool:
    try:
        open_encoder(coding)
    except CodingUnavailable:
        return False
    return True


def brotli_module() -> Any:
    """Import brotli, which has no types."""
    import brotli  # pyright: ignore[reportMissingTypeStubs]

    return cast("Any", brotli)
