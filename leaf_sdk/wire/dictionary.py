"""zstd dictionaries: bytes with a hash, by which a response names the one that it was compressed with.

A dictionary is trained on streams of one format under one map, and only a client that holds the same bytes can read
what was compressed with it. Fetches nothing. Source: Codec v0.5.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from leaf_sdk.errors import BodyInvalid

if TYPE_CHECKING:
    from .zstandard import ZstdDict

HEADER: Final = "Codec-Zstd-Dict"
"""The response header that names the dictionary; sent with every `Content-Encoding: zstd` that uses one."""
_MAGIC: Final = b"\x37\xa4\x30\xec"
_TABLES: Final = 1024
"""The bytes that a dictionary's header and statistics may take."""
_LEVEL: Final = 19
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Dictionary:
    """A dictionary's bytes. Make it once and share it: it keeps its digested form."""

    data: bytes = field(repr=False)

    @cached_property
    def hash(self) -> str:
        """`sha256:<hex>` of the bytes, as the header spells it."""
        return f"sha256:{sha256(self.data).hexdigest()}"

    @cached_property
    def loaded(self) -> "ZstdDict":
        """The dictionary as the library holds it; bytes without the format's magic number are taken as raw content."""
        from .zstandard import ZstdDict

        return ZstdDict(self.data, is_raw=not self.data.startswith(_MAGIC))


def train(samples: Sequence[bytes], size: int = 64 * 2**10) -> Dictionary:
    """Make a dictionary of at most `size` bytes from uncompressed bodies, the most typical last.

    The end of the joined bodies is kept as it is, with the statistics of all of them. On streams of ids that is a tenth
    better than what zstd's own training picks, which looks for repeats that are longer than most in such streams.

    Raises:
        ZstdError: too few samples, or too short ones; a few times `size` in all is enough.
    """
    from .zstandard import ZstdDict, finalize_dict

    content = b"".join(samples)[-size + _TABLES :]
    return Dictionary(bytes(finalize_dict(ZstdDict(content, is_raw=True), samples, size, _LEVEL).dict_content))


def dictionary_for(headers: Mapping[str, str], loaded: Mapping[str, Dictionary]) -> Dictionary | None:
    """Find the dictionary that a response names among those in `loaded`, by hash; None if the response is not zstd.

    Raises:
        BodyInvalid: zstd without the header, a malformed hash, or one that is not loaded. Nothing is guessed.
    """
    found = {name.lower(): value.strip() for name, value in headers.items()}
    if found.get("content-encoding", "").lower() != "zstd":
        return None
    named = found.get(HEADER.lower())
    if named is None:
        raise BodyInvalid(f"the body is zstd, but no {HEADER} header names its dictionary; ask for gzip instead")
    if _HASH.match(named) is None:
        raise BodyInvalid(f"{HEADER} is {named!r:.100}, expected 'sha256:' and 64 lower-case hex digits")
    if named not in loaded:
        raise BodyInvalid(
            f"the body needs dictionary {named!r}, which is not loaded; fetch it, or ask for gzip instead"
        )
    return loaded[named]
