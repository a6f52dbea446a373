"""Whether llama.cpp can load a model file at all, judged by the file alone, before a server is started for it.

Turns a path into a sentence about what is wrong with the file (none: nothing is) and figures from its head, and into a
stamp by which a change of the file is noticed. Only the head of a file is read, and once.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from gateway.config import EngineConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.errors import ConfigError
from leaf_sdk.errors import CodecError, MapTruncated, MapUnsupported
from leaf_sdk.vocab.gguf_head import HEAD_BYTES, MAGIC, Value, read_head
from leaf_sdk.vocab.gguf_tensors import least_size

Stamp = tuple[tuple[int, ...] | None, ...]
"""Changes when one of a model's files does."""

_BEGINNING: Final = 512
_HEAD_READS: Final = (8 << 20, HEAD_BYTES + 1)
"""How much of a file is read for its head: the first is enough for most."""
_PART: Final = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_MEGA: Final = 1_000_000
_GIGA: Final = 1_000_000_000
_AGAIN: Final = "get the file again"
_BYTES: Final = 2
"""Bytes of a number in the KV cache (f16)."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the files of a model tell. Where there is a fault, the figures are not known."""

    fault: str | None = None
    """Why llama.cpp can't load it; None: nothing is known against it."""
    trained_context: int | None = None
    """Tokens of context that it was trained on; None: its file does not say. llama.cpp gives no slot more."""
    weights: int | None = None
    """Bytes of all its files."""
    has_template: bool = True
    """Whether its file holds a chat template."""
    cache_per_token: int = 0
    """Bytes that one token takes in the KV cache of every layer; 0: its head does not say enough."""

    def memory(self, context: int) -> int | None:
        """Bytes for the weights and a KV cache of `context` tokens, roughly; None: they are not known."""
        return None if self.weights is None else self.weights + context * self.cache_per_token


class _FileFault(Exception):
    """The sentence that says why llama.cpp can't load a file."""


def examine_model(path: Path) -> ModelFacts:
    """Read the head of a model's file, and of each part if it is split. Reads the disk."""
    pairs: Mapping[str, Value] = {}
    weights = 0
    try:
        for part in _parts(path):
            found, size = _read_sound(part)
            weights += size
            if part == path:
                pairs = found
        _check_is_first(path, pairs)
    except _FileFault as fault:
        return ModelFacts(str(fault))
    except OSError as error:
        return ModelFacts(f"model {path.name!r} can't be read: {error.strerror}; check its path and its permissions")
    except (CodecError, ValueError):
        return ModelFacts(
            f"model {path.name!r} can't be read: it changed meanwhile, or no file can have this name; {_AGAIN}"
        )
    trained = _number(pairs, "context_length")
    has_template = isinstance(pairs.get("tokenizer.chat_template"), str)
    return ModelFacts(None, trained if trained > 0 else None, weights, has_template, _cache_per_token(pairs))


def model_fault(path: Path) -> str | None:
    """Why llama.cpp can't load this file; None: nothing is known against it. Reads the disk."""
    return examine_model(path).fault


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


def show_bytes(count: int) -> str:
    """Bytes for people: `98 MB`, `4.1 GB`."""
    return f"{count / _GIGA:.1f} GB" if count >= _GIGA else f"{count / _MEGA:.3g} MB"


def _read_sound(path: Path) -> tuple[Mapping[str, Value], int]:
    """The pairs in the head of one file, and its size. Raises `_FileFault`, and like `examine_model` catches."""
    name = path.name
    if path.is_dir():
        raise _FileFault(f"model {name!r} is a directory: name the GGUF file in it (--model, engine.model)")
    if not path.exists():
        split = _PART.fullmatch(name)
        more = "get all parts of the split model, in one directory" if split else "correct the path"
        raise _FileFault(f"model {name!r} does not exist: {more}")
    if not path.is_file():
        raise _FileFault(f"model {name!r} is not a regular file: name a GGUF file (--model, engine.model)")
    size = path.stat().st_size
    if not size:
        raise _FileFault(f"model {name!r} is empty: {_AGAIN}")
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING)
    if not beginning.startswith(MAGIC):
        raise _FileFault(f"model {name!r} is not a GGUF file: {_what_instead(beginning)}")
    try:
        pairs, needed = _read(path)
    except MapTruncated:
        raise _FileFault(
            f"model {name!r} is truncated: it ends after {show_bytes(size)}, inside its head; {_AGAIN}"
        ) from None
    except MapUnsupported as error:
        raise _FileFault(f"model {name!r} can't be read: {error}; {_AGAIN} in a current format") from None
    except CodecError as error:
        raise _FileFault(f"model {name!r} is damaged: {error}; {_AGAIN}") from None
    if needed > size:
        raise _FileFault(f"model {name!r} is truncated: it has {size} of at least {needed} bytes; {_AGAIN}")
    return pairs, size


def _check_is_first(path: Path, pairs: Mapping[str, Value]) -> None:
    """A split model is loaded by its first part."""
    number = pairs.get("split.no")
    if type(number) is int and number != 0:
        raise _FileFault(
            f"model {path.name!r} is part {number + 1} of a split model: name its first part (--model, engine.model)"
        )


def _parts(path: Path) -> Iterator[Path]:
    """The files of a split model, by the name of one of them; the path itself if it is not split."""
    named = _PART.fullmatch(path.name)
    if named is None or not 1 <= int(named["number"]) <= int(named["count"]):
        yield path
        return
    count = named["count"]
    for number in range(1, int(count) + 1):
        yield path.with_name(f"{named['stem']}-{number:05}-of-{count}.gguf")


def _read(path: Path) -> tuple[Mapping[str, Value], int]:
    """The pairs in a head, and the bytes that the file has at least.

    The file is not mapped: it may be cut short meanwhile, which would be a SIGBUS.
    """
    with path.open("rb") as file:
        first, most = _HEAD_READS
        data = file.read(first)
        try:
            return _parsed(data)
        except MapTruncated:
            if len(data) < first:
                raise
        return _parsed(data + file.read(most - first))


def _parsed(data: bytes) -> tuple[Mapping[str, Value], int]:
    head = read_head(data)
    return head.pairs, least_size(head)


def _shown(beginning: bytes) -> str:
    return repr(beginning).removeprefix("b")


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
    start = _shown(beginning[:4])
    return (
        f"it starts with {start}, a GGUF file with {_shown(MAGIC)}; name the model's GGUF file (--model, engine.model)"
    )


def _cache_per_token(pairs: Mapping[str, Value]) -> int:
    heads = _number(pairs, "attention.head_count")
    width = _number(pairs, "embedding_length") // heads if heads else 0
    key, value = _number(pairs, "attention.key_length") or width, _number(pairs, "attention.value_length") or width
    return _number(pairs, "block_count") * (_number(pairs, "attention.head_count_kv") or heads) * (key + value) * _BYTES


def _number(pairs: Mapping[str, Value], key: str) -> int:
    """A number that the model's architecture has; 0 if the head does not say. The largest, if layers differ in it."""
    value = pairs.get(f"{pairs.get('general.architecture')}.{key}")
    value = max((each for each in value if type(each) is int), default=0) if isinstance(value, list) else value
    return value if type(value) is int else 0


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        told = path.stat()
    except (OSError, ValueError):
        return None
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns


# The model file of an embedded engine, watched for a change that makes another attempt worthwhile.
#
# Turns the settings of an engine into a stamp of its model's file, and waits until that changes. An engine that is not
# ours has no file, which never changes.

_POLL: Final = 1.0
"""Seconds between two looks at the file."""


class ModelFile:
    """The file that an embedded engine loads."""

    def __init__(self, settings: EngineConfig) -> None:
        self._settings = settings

    def fault(self) -> str | None:
        """Why llama.cpp can't load it; None: nothing is known against it, or there is no file."""
        return None if (path := self._path()) is None else model_fault(path)

    async def stamp(self) -> Stamp:
        """What to compare later."""
        return () if (path := self._path()) is None else await run_sync(model_stamp, path)

    async def until_changed(self, before: Stamp) -> None:
        """Return when the file is not as it was before, and is at rest: a download may be writing it."""
        last = before
        while True:
            await anyio.sleep(_POLL)
            now = await self.stamp()
            if now != before and now == last:
                return
            last = now

    def _path(self) -> Path | None:
        if self._settings.kind != "embedded":
            return None
        try:
            return self._settings.model or packaged_model()
        except ConfigError:
            return None
