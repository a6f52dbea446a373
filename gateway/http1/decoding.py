"""Compressed bodies into plain ones (RFC 9110, 8.4.1), as they come and with a bound on what they become.

The gateway asks for no compression, but servers behind some proxies compress all the same. gzip and deflate are decoded
here, in portions, so that whoever reads them can stop at a bound; br and zstd by the SDK, if its extra `wire` is there.
It knows no connection.
"""

import zlib
from typing import Final, Literal, Protocol

from gateway.http1.faults import NoAnswer

_PORTION: Final = 64 * 1024
_FREE: Final = 16 * 1024 * 1024
"""Bytes that a body may become whatever it was."""
_GROWTH: Final = 200
"""Times that a longer body may grow: JSON grows tenfold, a body of line ends a thousandfold."""
_MAGIC: Final = 2
"""Bytes by which gzip and zlib are told from neither."""
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS


class BodyDecoder(Protocol):
    """Decodes one body."""

    def feed(self, data: bytes) -> None:
        """Add what came. Raises as `take`."""
        ...

    def take(self) -> bytes:
        """The next portion; empty if more must come first.

        Raises:
            NoAnswer: it is not compressed as the header says, or grows too much.
        """
        ...


def decoder_for(encoding: str) -> BodyDecoder | None:
    """What decodes a body with this `Content-Encoding`; None: it is not compressed.

    Raises:
        NoAnswer: it is compressed in a way that can't be decoded here.
    """
    # Some servers write other words there, such as `utf-8` and `none`, which mean nothing.
    match encoding.strip().lower():
        case "gzip" | "x-gzip" | "deflate":
            return Inflater()
        case "br" | "zstd" as coding:
            return _SdkDecoder(coding)
        case "compress" | "x-compress" as coding:
            raise NoAnswer(f"its answer is compressed with {coding!r}, although the request accepted no compression")
        case _:
            return None


class _SdkDecoder:
    """Decodes br and zstd."""

    def __init__(self, coding: Literal["br", "zstd"]) -> None:
        # Imported here because no server should need it.
        from leaf_sdk.errors import CodingUnavailable
        from leaf_sdk.wire.decompression import Decoder as Decompressor

        try:
            self._inner = Decompressor(coding, _FREE)
        except CodingUnavailable:
            raise NoAnswer(
                f"its answer is compressed with {coding!r}, although the request accepted no compression; with the "
                "package codec-leaf[wire] installed, this gateway can read it"
            ) from None
        self._ready = b""

    def feed(self, data: bytes) -> None:
        """See `BodyDecoder`."""
        from leaf_sdk.errors import BodyInvalid, BodyTooLarge

        try:
            self._ready += self._inner.feed(data)
        except BodyTooLarge:
            raise NoAnswer(f"its compressed answer becomes more than {_FREE // 2**20} MiB") from None
        except BodyInvalid:
            raise NoAnswer("its answer is compressed, but damaged") from None

    def take(self) -> bytes:
        """See `BodyDecoder`."""
        data, self._ready = self._ready, b""
        return data


class Inflater:
    """Decodes gzip and deflate."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_ANY_HEADER)
        self._left = b""
        self._begun = False
        self._fed = self._given = 0

    def feed(self, data: bytes) -> None:
        """See `BodyDecoder`."""
        self._left += data
        self._fed += len(data)

    def take(self) -> bytes:
        """See `BodyDecoder`."""
        if not self._begun and len(self._left) < _MAGIC:
            return b""
        try:
            data = self._inflate.decompress(self._left, _PORTION)
        except zlib.error:
            if self._begun:
                raise NoAnswer("its answer is compressed, but damaged") from None
            # Many servers send `deflate` without the header of zlib that the RFC asks for.
            self._inflate, self._begun = zlib.decompressobj(-zlib.MAX_WBITS), True
            return self.take()
        self._begun = True
        self._left = self._inflate.unconsumed_tail
        self._given += len(data)
        if self._given > _FREE and self._given > _GROWTH * self._fed:
            raise NoAnswer(f"its compressed answer grows to more than {_GROWTH} times its size")
        return data
