"""Names and values for a store that others can read: neither reveals anything, and only a replica can make one.

Turns a purpose and what is looked for into a key of the store. Seals bytes so that they open only for the same purpose,
principal and key. When the secret is replaced, what was made with the previous one is still found and opened. No IO.
"""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from gateway.replicas.keys import derived

_FORMAT: Final = b"\x03"
"""The format of values, and of what the packages write into them. A value of another format counts as missing."""
_NONCE: Final = 12
_DIGEST: Final = 18


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The secrets that all replicas share, for one store."""

    secrets: Sequence[bytes]
    """The first is used for anything new; the others are still accepted."""
    prefix: str
    _naming: Sequence[bytes] = field(init=False, repr=False)
    _sealing: Sequence[ChaCha20Poly1305] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_naming", [derived(each, "store names") for each in self.secrets])
        sealing = [ChaCha20Poly1305(derived(each, "store values")) for each in self.secrets]
        object.__setattr__(self, "_sealing", sealing)

    def names(self, purpose: str, *parts: str | bytes) -> list[bytes]:
        """The keys under which something may be stored; new values are stored under the first."""
        said = _joined(purpose, *parts)
        digests = [blake2b(said, key=key, digest_size=_DIGEST).digest() for key in self._naming]
        return [f"{self.prefix}{purpose}:{urlsafe_b64encode(digest).decode()}".encode() for digest in digests]

    def plain_name(self, what: str) -> bytes:
        """The key of something that is not secret."""
        return f"{self.prefix}{what}".encode()

    def seal(self, purpose: str, owner: str, name: bytes, plain: bytes) -> bytes:
        """Seal a value for one key and one principal."""
        nonce = secrets.token_bytes(_NONCE)
        return _FORMAT + nonce + self._sealing[0].encrypt(nonce, plain, _joined(purpose, owner, name))

    def opened(self, purpose: str, owner: str, name: bytes, value: bytes) -> bytes | None:
        """The bytes that were sealed; None if they were not, or not for this purpose, principal and key."""
        nonce, sealed = value[1 : 1 + _NONCE], value[1 + _NONCE :]
        if value[:1] != _FORMAT or len(nonce) != _NONCE:
            return None
        bound = _joined(purpose, owner, name)
        for sealing in self._sealing:
            try:
                return sealing.decrypt(nonce, sealed, bound)
            except InvalidTag:
                continue
        return None


def _joined(*parts: str | bytes) -> bytes:
    encoded = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts]
    # Lengths first: no part can move into its neighbour.
    return b"".join([b"%d:%b" % (len(part), part) for part in encoded])
