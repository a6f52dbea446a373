"""The smaller blocks of a map, read and checked: tool calling, zstd dictionaries, metaspace.

Each reader takes the map's fields and returns a frozen dataclass, or names the field that is wrong. Source: Codec
specification 0.5, "tool_calling" and "zstd_dictionaries".
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from leaf_sdk.errors import MapHashMalformed, NotAMap

from .digest import normalise_hash
from .fields import as_object, refused
from .tokenizer import Metaspace

CONVENTIONS = ("custom", "deepseek_r1", "deepseek_v3", "llama3", "mistral_nemo", "phi4", "qwen25")
"""The tool-call conventions that a map may declare."""


@dataclass(frozen=True, slots=True)
class ToolCalling:
    """How the model writes a tool call: the convention's name and the two marker tokens around it."""

    convention: str
    start: str
    end: str
    args_format: str
    result_format: str


@dataclass(frozen=True, slots=True)
class ZstdDictionary:
    """A trained dictionary for streams of this map's ids: where it is, and the sha256 that names its bytes."""

    format: Literal["msgpack", "protobuf"]
    url: str
    hash: str
    size_bytes: int


def read_tool_calling(fields: Mapping[str, Any], special_tokens: Mapping[str, int]) -> ToolCalling | None:
    """Read `tool_calling`; both of its markers must be special tokens."""
    block = fields.get("tool_calling")
    if block is None:
        return None
    if not isinstance(block, dict) or not isinstance(cast("dict[str, Any]", block).get("markers"), dict):
        raise NotAMap("tool_calling is not an object with markers, expected {convention, markers: {start, end}, ...}")
    part = cast("dict[str, Any]", block)
    markers = cast("dict[str, Any]", part["markers"])
    start, end = str(markers.get("start")), str(markers.get("end"))
    _one_of(part, "convention", CONVENTIONS)
    _one_of(part, "args_format", ("json", "python_args"))
    _one_of(part, "result_format", ("text", "json"))
    if start not in special_tokens or end not in special_tokens:
        raise NotAMap(f"tool_calling.markers {start!r} and {end!r} must both be keys of special_tokens")
    return ToolCalling(part["convention"], start, end, part["args_format"], part["result_format"])


def write_tool_calling(block: ToolCalling) -> dict[str, Any]:
    """Return the JSON of `tool_calling`."""
    return {
        "convention": block.convention,
        "markers": {"start": block.start, "end": block.end},
        "args_format": block.args_format,
        "result_format": block.result_format,
    }


def read_dictionaries(fields: Mapping[str, Any]) -> tuple[ZstdDictionary, ...]:
    """Read `zstd_dictionaries`, with their hashes normalised."""
    value = fields.get("zstd_dictionaries")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise NotAMap(f"zstd_dictionaries is a {type(value).__name__}, expected a list of {{format, url, hash, ...}}")
    return tuple(_dictionary(entry, at) for at, entry in enumerate(cast("list[object]", value)))


def _dictionary(entry: object, at: int) -> ZstdDictionary:
    where = f"zstd_dictionaries[{at}]"
    part = as_object(entry)
    size, url = part.get("size_bytes"), part.get("url")
    if part.get("format") not in ("msgpack", "protobuf"):
        raise NotAMap(f"{where}.format is {part.get('format')!r}, expected 'msgpack' or 'protobuf'")
    if not isinstance(url, str) or not url or type(size) is not int or size < 1:
        raise NotAMap(f"{where} has url {url!r:.80} and size_bytes {size!r:.20}, expected an address and a size")
    try:
        digest = normalise_hash(str(part.get("hash")))
    except MapHashMalformed as error:
        raise NotAMap(f"{where}.hash: {error.message}") from error
    return ZstdDictionary(part["format"], url, digest, size)


def read_metaspace(fields: Mapping[str, Any]) -> Metaspace | None:
    """Read `x_metaspace`, which says what the map format itself leaves open: what happens to spaces."""
    value = fields.get("x_metaspace")
    if value is None:
        return None
    part = as_object(value)
    flags = {key: part.get(key, False) for key in ("first_only", "split", "collapse")}
    known = part.get("prefix") in ("never", "always", "missing") and set(part) <= {"prefix", *flags}
    if not known or set(map(type, flags.values())) != {bool}:
        raise refused(
            f"x_metaspace {str(cast('object', value))[:100]}", "this version does not know it; upgrade codec-leaf"
        )
    return Metaspace(part["prefix"], **flags)


def write_metaspace(metaspace: Metaspace) -> dict[str, Any]:
    """Return the JSON of `x_metaspace`; flags that are false are left out."""
    return {key: value for key, value in asdict(metaspace).items() if value is not False}


def _one_of(part: Mapping[str, Any], key: str, known: Sequence[str]) -> None:
    if part.get(key) not in known:
        raise NotAMap(f"tool_calling.{key} is {part.get(key)!r}, expected one of {list(known)}")
