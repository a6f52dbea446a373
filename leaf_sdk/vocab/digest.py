"""A map's bytes to its name: `sha256:` and 64 lower-case hex digits over the exact bytes, as they are served.

Any reformatting of a map file changes its name, on purpose: two parties that name the same hash hold the same
vocabulary. Knows nothing of what the bytes mean. Source: Codec specification 0.5, "Hash"; stricter than the reference,
which lets any text that starts with `sha256:` pass and then fails to match an upper-case one.
"""

import hashlib
import re
from functools import lru_cache

from leaf_sdk.errors import MapHashMalformed

_BARE = re.compile(r"[0-9a-fA-F]{64}")
_PREFIX = "sha256:"
_LENGTH = len(_PREFIX) + 64
_KEPT = 1024


def normalise_hash(text: str) -> str:
    """Return the normal form of a hash, `sha256:<64 lower-case hex>`; bare hex and upper case are accepted.

    Raises:
        MapHashMalformed: another algorithm, another length, or something that is not hex.
    """
    if len(text) > _LENGTH:
        raise _malformed(text)
    return _normalised(text)


@lru_cache(_KEPT)
def _normalised(text: str) -> str:
    """Return the normal form, remembered: every text of a result names its map, and there are only a few maps."""
    bare = text.removeprefix(_PREFIX)
    if _BARE.fullmatch(bare) is None:
        raise _malformed(text)
    return _PREFIX + bare.lower()


def _malformed(text: str) -> MapHashMalformed:
    return MapHashMalformed(
        f"map hash must be 'sha256:<64 hex digits>' or the 64 digits alone, got {text!r}; "
        "`codec-leaf map hash FILE` prints the right one"
    )


def check_bytes(data: object, function: str) -> None:
    """Raise `TypeError` for what is not bytes, as a path is not: nothing here opens files."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(
            f"{function} takes the bytes of a file, got {type(data).__name__}; to open a file by its path, use "
            "leaf_sdk.open_map"
        )


def map_digest(data: bytes) -> str:
    """Name a map by its exact bytes."""
    return _PREFIX + hashlib.sha256(data).hexdigest()
