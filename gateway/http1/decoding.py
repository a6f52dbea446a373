"""Compressed bodies into plain ones: gzip and deflate (RFC 9110, 8.4.1), as they come and in portions of bounded size.

The gateway asks for no compression, but servers behind some proxies compress all the same. A small body that becomes a
huge one is given out in portions, so that whoever reads it can stop at a bound. It knows no connection.
"""

import zlib
from typing import Final

from gateway.http1.faults import NoAnswer

READABLE: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""Values of `Content-Encoding` that can be decoded."""
_PORTION: Final = 64 * 1024
_FREE: Final = 16 * 1024 * 1024
"""Bytes that a body may become whatever it was."""
_GROWTH: Final = 200
"""Times that a longer body may grow: JSON grows tenfold, a body of line ends a thousandfold."""
_MAGIC: Final = 2
"""Bytes by which gzip and zlib are told from neither."""
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS


class Decoder:
    """Decodes one body."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_ANY_HEADER)
        self._left = b""
        self._begun = False
        self._fed = self._given = 0

    def feed(self, data: bytes) -> None:
        """Add what came."""
        self._left += data
        self._fed += len(data)

    def take(self) -> bytes:
        """The next portion; empty if more must come first.

        Raises:
            NoAnswer: it is not compressed as the header says, or grows too much.
        """
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
