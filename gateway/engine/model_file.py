"""Whether llama.cpp can load a model file at all, judged by the file alone, before a server is started for it.

Turns a path into a sentence about what is wrong with the file (none: nothing is), an estimate of the memory that it
needs, and a stamp by which a change of the file is noticed. Only the head of the file is read.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from leaf_sdk.errors import CodecError, MapTruncated, MapUnsupported
from leaf_sdk.vocab.gguf_head import HEAD_BYTES, MAGIC, GgufHead, read_head
from leaf_sdk.vocab.gguf_tensors import least_size

T = TypeVar("T")
Stamp = tuple[tuple[int, ...] | None, ...]
"""Changes when one of a model's files does."""

_BEGINNING: Final = 512
_HEAD_READS: Final = (8 << 20, HEAD_BYTES + 1)
"""How much of a file is read for its head: the first is enough for most."""
_PART: Final = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MEGA: Final = 1_000_000
_GIGA: Final = 1_000_000_000
_AGAIN: Final = "get the file again"
_CACHE_BYTES: Final = 2
"""Bytes of a number in the KV cache (f16)."""


def model_fault(path: Path) -> str | None:
    """Why llama.cpp can't load this file; None: nothing is known against it. Reads the disk."""
    try:
        return next(filter(None, map(_fault_of_part, _parts(path))), None) or _fault_of_split(path)
    except OSError as error:
        return f"model {path.name!r} can't be read: {error.strerror}; check its path and its permissions"
    except (CodecError, ValueError):
        return f"model {path.name!r} can't be read: it changed meanwhile, or no file can have this name; {_AGAIN}"


def model_stamp(path: Path) -> Stamp:
    """What to compare later to notice that a model's file has changed, or one of its parts. Reads the disk.

    It ends with the first part that is missing, so that a name that claims 99999 parts costs nothing.
    """
    stamps: list[tuple[int, ...] | None] = []
    for each in _parts(path):
        stamps.append(_stamp(each))
        if stamps[-1] is None:
            break
    return tuple(stamps)


def memory_needed(path: Path, context: int) -> int | None:
    """Bytes for the weights of a model and a KV cache of `context` tokens, roughly; None: it can't be read."""
    try:
        weights = sum(each.stat().st_size for each in _parts(path))
        return weights + context * _cache_per_token(_head(path))
    except (OSError, CodecError, ValueError):
        return None


def trained_context(path: Path) -> int | None:
    """Tokens of context that a model was trained on; None: its file does not say. llama.cpp gives no slot more."""
    try:
        pairs = _head(path).pairs
    except (OSError, CodecError):
        return None
    value = pairs.get(f"{pairs.get('general.architecture')}.context_length")
    return value if type(value) is int and value > 0 else None


def show_bytes(count: int) -> str:
    """Bytes for people: `98 MB`, `4.1 GB`."""
    return f"{count / _GIGA:.1f} GB" if count >= _GIGA else f"{count / _MEGA:.3g} MB"


def _fault_of_part(path: Path) -> str | None:
    if path.is_dir():
        return f"model {path.name!r} is a directory: name the GGUF file in it (--model, engine.model)"
    if not path.exists():
        split = _PART.fullmatch(path.name)
        more = "get all parts of the split model, in one directory" if split else "correct the path"
        return f"model {path.name!r} does not exist: {more}"
    if not path.is_file():
        return f"model {path.name!r} is not a regular file: name a GGUF file (--model, engine.model)"
    size = path.stat().st_size
    if not size:
        return f"model {path.name!r} is empty: {_AGAIN}"
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING)
    if not beginning.startswith(MAGIC):
        return f"model {path.name!r} is not a GGUF file: {_what_instead(beginning)}"
    try:
        needed = _read(path, least_size)
    except MapTruncated:
        return f"model {path.name!r} is truncated: it ends after {show_bytes(size)}, inside its head; {_AGAIN}"
    except MapUnsupported as error:
        return f"model {path.name!r} can't be read: {error}; {_AGAIN} in a current format"
    except CodecError as error:
        return f"model {path.name!r} is damaged: {error}; {_AGAIN}"
    if needed > size:
        return f"model {path.name!r} is truncated: it has {size} of at least {needed} bytes; {_AGAIN}"
    return None


def _fault_of_split(path: Path) -> str | None:
    """A split model is loaded by its first part."""
    number = _head(path).pairs.get("split.no")
    if type(number) is not int or number == 0:
        return None
    return f"model {path.name!r} is part {number + 1} of a split model: name its first part (--model, engine.model)"


def _parts(path: Path) -> Iterator[Path]:
    """The files of a split model, by the name of one of them; the path itself if it is not split."""
    named = _PART.fullmatch(path.name)
    if named is None or not 1 <= int(named["number"]) <= int(named["count"]):
        yield path
        return
    count = named["count"]
    for number in range(1, int(count) + 1):
        yield path.with_name(f"{named['stem']}-{number:05}-of-{count}.gguf")


def _head(path: Path) -> GgufHead:
    return _read(path, lambda head: head)


def _read(path: Path, use: Callable[[GgufHead], T]) -> T:
    """What `use` makes of the head. The file is not mapped: it may be cut short meanwhile, which would be a SIGBUS."""
    with path.open("rb") as file:
        first, most = _HEAD_READS
        data = file.read(first)
        try:
            return use(read_head(data))
        except MapTruncated:
            if len(data) < first:
                raise
        return use(read_head(data + file.read(most - first)))


def _what_instead(beginning: bytes) -> str:
    text = beginning.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "it is a web page, saved in place of the download; download the file itself"
    if text.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer; run `git lfs pull` where it was cloned, or download the file itself"
    if beginning[8:10] == b'{"':
        return "it is a safetensors file; get the model's GGUF, or convert it with llama.cpp's convert_hf_to_gguf.py"
    if beginning.startswith((b"PK\x03\x04", b"\x80\x02")):
        return "it is a PyTorch or ZIP file; get the model's GGUF, or convert it with llama.cpp's convert_hf_to_gguf.py"
    if beginning[:4] in (b"lmgg", b"fmgg", b"tjgg", b"algg"):
        return "it is in llama.cpp's format from before August 2023; get the model as GGUF"
    if text.startswith((b"{", b"[")):
        return "it is JSON; name the model's GGUF file (--model, engine.model)"
    return f"it starts with {beginning[:4]!r}, expected {MAGIC!r}; name the model's GGUF file (--model, engine.model)"


def _cache_per_token(head: GgufHead) -> int:
    """Bytes that one token takes in the KV cache of every layer, where the head says enough to know."""

    def number(key: str) -> int:
        value = head.pairs.get(f"{head.pairs.get('general.architecture')}.{key}")
        # One number per layer in models whose layers differ.
        value = max((each for each in value if type(each) is int), default=0) if isinstance(value, list) else value
        return value if type(value) is int else 0

    heads = number("attention.head_count")
    width = number("embedding_length") // heads if heads else 0
    key, value = number("attention.key_length") or width, number("attention.value_length") or width
    return number("block_count") * (number("attention.head_count_kv") or heads) * (key + value) * _CACHE_BYTES


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        told = path.stat()
    except (OSError, ValueError):
        return None
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns
