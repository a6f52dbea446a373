"""The format and the size of a picture, from the beginning of its bytes: PNG, JPEG, GIF, WebP. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

HEAD: Final = 65_536
"""Most bytes that are needed: a JPEG may hold a preview before its size."""
_NO_SIZE: Final = frozenset({0xC4, 0xC8, 0xCC})
"""Markers among those of JPEG's frames that begin no frame."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What the head of a picture says."""

    media_type: str
    width: int
    height: int


def read_picture(head: bytes) -> Picture | None:
    """Read the head of a picture; None where it is none of these formats, or its size is not in the head."""
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
        return _picture("png", head[16:20], head[20:24], "big")
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return _picture("gif", head[6:8], head[8:10], "little")
    if head.startswith(b"\xff\xd8"):
        return _jpeg(head)
    return _webp(head) if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


def _picture(name: str, width: bytes, height: bytes, order: Literal["big", "little"]) -> Picture | None:
    if not width or len(height) < len(width):
        return None
    sides = (int.from_bytes(side, order) for side in (width, height))
    return Picture(f"image/{name}", *sides)


def _jpeg(head: bytes) -> Picture | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            return _picture("jpeg", head[at + 7 : at + 9], head[at + 5 : at + 7], "big")
        # A fill byte stands alone; all segments before the frame have a length.
        at += 1 if marker == 0xFF else 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _webp(head: bytes) -> Picture | None:
    if len(head) < 30:
        return None
    match head[12:16]:
        case b"VP8X":
            return Picture("image/webp", _little(head[24:27]) + 1, _little(head[27:30]) + 1)
        case b"VP8L":
            bits = _little(head[21:25])
            return Picture("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8 ":
            return Picture("image/webp", _little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF)
        case _:
            return None


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
