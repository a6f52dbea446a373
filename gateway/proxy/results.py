"""Tool results as raw dicts: errors that we write ourselves, how calls ended, and texts for what no model reads.

No IO. It knows no upstream and no token id.
"""

import re
import time
from base64 import b64decode
from binascii import Error
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, cast

from gateway.errors import NotApproved, UpstreamTimeout, UpstreamUnavailable
from gateway.observe.audit import IdsSource

Ending = Literal["ok", "tool_error", "timeout", "unavailable", "refused"]
"""How a call that has a result ended, in the words of the metrics and the audit log."""


class CallOutcome(NamedTuple):
    """The result of a call, and what the gateway knows about the call."""

    result: dict[str, Any]
    ended: Ending
    server: str = ""
    """The server that was called; empty if the gateway itself answered."""
    tool: str = ""
    """The tool's own name on that server."""
    seconds: float = 0.0
    """Seconds from when the server was found to the result."""
    source: IdsSource = "none"
    ids: int = 0
    """How many ids are sent with the result."""
    map_id: str | None = None
    """The map that the client named."""


@dataclass(frozen=True, slots=True)
class WrittenIds:
    """What our own agent passes along with a call; whoever passes it can read ids in the result."""

    ids: tuple[int, ...] | None
    """The ids that the model wrote, in the engine's tokenizer, which every accepted map was proven to be."""
    name: str | None
    """The tool's name as `ids` spell it, if they spell the whole call; None: they spell only the arguments."""


def error_result(text: str) -> dict[str, Any]:
    """A CallToolResult that tells the model what went wrong (MCP tools, "Error Handling")."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def failure(message: str, *, modern: bool) -> dict[str, Any]:
    """An error result of our own, in the form of the caller's era."""
    return in_era(error_result(message), modern=modern)


def in_era(result: dict[str, Any], *, modern: bool) -> dict[str, Any]:
    """A result of our own, in the form of the caller's era."""
    if modern:
        result["resultType"] = "complete"
    return result


def ending_by(error: NotApproved | UpstreamTimeout | UpstreamUnavailable) -> Ending:
    """How a call ended that raised this."""
    if isinstance(error, NotApproved):
        return "refused"
    return "timeout" if isinstance(error, UpstreamTimeout) else "unavailable"


def ending_of(result: Mapping[str, Any]) -> Ending:
    """How a call ended, by its server's result."""
    return "tool_error" if result.get("isError") is True else "ok"


def objects_in(value: object) -> list[dict[str, Any]]:
    """The objects in a JSON list; none if it is not a list."""
    if not isinstance(value, list):
        return []
    items: list[Any] = value  # pyright: ignore[reportUnknownVariableType] - a cast is a call, and each call comes here
    return [item for item in items if isinstance(item, dict)]


def exceeds(value: object, limit: int) -> bool:
    """Whether the strings in a JSON value, keys included, take more than `limit` bytes; counting stops there."""
    left = limit
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            left -= len(item) if item.isascii() else len(item.encode("utf-8", "surrogatepass"))
        elif isinstance(item, Mapping):
            fields = cast("Mapping[str, object]", item)
            waiting += fields.keys()
            waiting += fields.values()
        elif isinstance(item, list):
            waiting += cast("list[object]", item)
            # Numbers count too: JSON needs at least two bytes for each item of a list.
            left -= 2 * len(cast("list[object]", item))
        if left < 0:
            return True
    return False


# Of what a block says, only known words and numbers get into the text, so that it can't say anything else; no address
# is fetched. The shapes are those of MCP and of all APIs that are served.

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


ContentBlock = Mapping[str, Any]

KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("image", "image_url", "input_image", "image_file"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video"),
    **dict.fromkeys(("document", "file", "input_file", "resource", "resource_link"), "file"),
}
"""What blocks that hold no text are, by their types."""
_TEXTS: Final = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_INSIDE: Final = ("source", "image_url", "input_audio", "audio_url", "video_url", "file", "resource")
_DATA: Final = ("data", "blob", "file_data")
_ADDRESSES: Final = ("url", "image_url", "file_url", "video_url", "audio_url", "uri")
"""Where a block names an address, or has its data as a `data:` URL."""
_MEDIA_TYPES: Final = ("media_type", "mimeType", "mime_type", "mediaType")
_KNOWN: Final = frozenset(
    {
        *(f"image/{name}" for name in ("png", "jpeg", "gif", "webp", "bmp", "tiff", "avif", "heic", "svg+xml")),
        *(f"audio/{name}" for name in ("wav", "mpeg", "mp3", "mp4", "ogg", "flac", "aac", "webm")),
        *(f"video/{name}" for name in ("mp4", "mpeg", "webm", "quicktime")),
        *(f"text/{name}" for name in ("plain", "html", "csv", "markdown")),
        *(f"application/{name}" for name in ("pdf", "json", "xml", "zip", "gzip", "octet-stream")),
    }
)
"""Media types that are named; of any other, only what it is a kind of."""
_HEADER: Final = 200
"""Most characters of a data URL before its data."""
_ADDRESS: Final = 200
_NO_ADDRESS: Final = re.compile(r"[^!-Z^-~]")
"""All that no address has: blanks, line ends, brackets."""
_UNITS: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def text_of(block: ContentBlock) -> str | None:
    """The text of a block that holds text in some form; None for any other."""
    kind, text = block.get("type"), block.get("text")
    if isinstance(kind, str) and kind in _TEXTS:
        return text if isinstance(text, str) else None
    match kind:
        case "resource":
            return _string(_mapping(block.get("resource")).get("text"))
        case "refusal":
            return _string(block.get("refusal"))
        case "tool_reference":
            return _string(block.get("tool_name"))
        case "document":
            return _document(_mapping(block.get("source")))
        case "search_result":
            return _joined(block.get("content"))
        case _:
            return None


def stand_in(block: ContentBlock, address: object = None) -> str:
    """The text in place of a block that holds none. `address`: where a tool can find it, for a model to pass on."""
    kind = block.get("type")
    what = KINDS.get(kind, "content of an unknown kind") if isinstance(kind, str) else "content of an unknown kind"
    words: list[str] = []
    media_type, data = _found(block)
    if data is not None:
        picture = read_picture(_decoded(data))
        if picture is not None:
            media_type, words = picture.media_type, [f"{picture.width}x{picture.height}"]
        words.append(_size(len(data) * 3 // 4 - data[-2:].count("=")))
    elif address is None and _has_address(block):
        words.append("not fetched")
    if isinstance(address, str):
        words.append(f"at {_NO_ADDRESS.sub('', address)[:_ADDRESS]}")
    named = media_type if media_type in _KNOWN else what
    return f"[{', '.join((named, *words))}: this model reads text]"


def _found(block: ContentBlock) -> tuple[str, str | None]:
    """The media type that a block gives, and its data in base64."""
    media_type, data = "", None
    for fields in _parts(block):
        declared = next((fields[key] for key in _MEDIA_TYPES if isinstance(fields.get(key), str)), None)
        sound = fields.get("format")
        media_type = media_type or declared or (f"audio/{sound}" if isinstance(sound, str) else "")
        for key in (*_DATA, *_ADDRESSES):
            value: object = fields.get(key)
            if not isinstance(value, str):
                continue
            header, comma, _ = value[:_HEADER].partition(",")
            if header.startswith("data:") and comma:
                media_type, data = header[5:].partition(";")[0], value[len(header) + 1 :]
            elif key in _DATA:
                data = value
    return media_type.lower(), data


def _has_address(block: ContentBlock) -> bool:
    return any(isinstance(fields.get(key), str) for fields in _parts(block) for key in _ADDRESSES)


def _parts(block: ContentBlock) -> Iterator[ContentBlock]:
    """The block, and the objects in it where APIs put data."""
    yield block
    for key in _INSIDE:
        if isinstance(block.get(key), Mapping):
            yield block[key]


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data[: HEAD * 4 // 3 // 4 * 4])
    except (Error, ValueError):
        return b""


def _size(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size // unit} {name}"
    return f"{max(size, 0)} bytes"


def _document(source: ContentBlock) -> str | None:
    match source.get("type"):
        case "text":
            return _string(source.get("data"))
        case "content":
            return _joined(source.get("content"))
        case _:
            return None


def _joined(content: object) -> str | None:
    """The texts of a content, one a line; what is no text has its stand-in."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    blocks = (cast("ContentBlock", each) for each in cast("list[object]", content) if isinstance(each, Mapping))
    # Only one level: a document in a document is not read.
    return "\n".join(_string(each.get("text")) or stand_in(each) for each in blocks)


def _mapping(value: object) -> ContentBlock:
    return cast("ContentBlock", value) if isinstance(value, Mapping) else {}


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


# The last tool calls in figures: who made each, how it ended and how long it took, but none of its content.
#
# Keeps as many as a person looks at, for whoever runs the gateway. No IO.

KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class LastCall:
    """One finished call."""

    ended_at: datetime
    server: str
    tool: str
    """The tool's own name on that server."""
    principal: str
    ended: str
    """`ok`, or how it failed, in the words of the audit log."""
    seconds: float


class LastCalls:
    """The last calls of all servers; the oldest are dropped."""

    def __init__(self) -> None:
        # Every call is noted and few are ever looked at, so a `LastCall` is made only when somebody asks.
        self._kept: deque[tuple[float, str, str, str, str, float]] = deque(maxlen=KEPT)

    def note(self, server: str, tool: str, principal: str, ended: str, seconds: float) -> None:
        """Note a finished call. Takes about 0.2 µs."""
        # A date: made from a monotonic time later, it would come out a little different at each look.
        self._kept.append((time.time(), server, tool, principal, ended, seconds))  # noqa: TID251

    def of(self, server: str, tool: str | None = None) -> list[LastCall]:
        """The last calls of a server, or of one of its tools, the latest first."""
        return [
            LastCall(datetime.fromtimestamp(at, UTC), of, name, principal, ended, seconds)
            for at, of, name, principal, ended, seconds in reversed(self._kept)
            if of == server and tool in (None, name)
        ]
