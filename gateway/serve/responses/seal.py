"""Text that a client keeps for the gateway: the model's reasoning, where the client keeps the conversation itself.

A seal binds a text to the principal that got it, with a secret that all replicas have. Anything not sealed this way, or
sealed for somebody else, is not accepted. A seal does not encrypt: its holder has seen the text. Signatures are made
with a secret of this process.
"""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from json import dumps
from typing import Final

_MARK: Final = "codec1."
_DIGEST: Final = 16


class Seal:
    """The seals of one process."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys`: the keys of seals; the first one makes new seals."""
        self._keys = keys
        self._key = secrets.token_bytes(32)

    def close(self, owner: str, text: str) -> str:
        """Seal a text for its owner."""
        content = text.encode("utf-8", "surrogatepass")
        return _MARK + urlsafe_b64encode(_digest(self._keys[0], owner, content) + content).decode()

    def open(self, owner: str, sealed: str) -> str | None:
        """The text in a seal that was made for this owner; None for anything else."""
        if not sealed.startswith(_MARK):
            return None
        try:
            data = urlsafe_b64decode(sealed.removeprefix(_MARK))
        except ValueError:
            return None
        content = data[_DIGEST:]
        if not any(compare_digest(data[:_DIGEST], _digest(key, owner, content)) for key in self._keys):
            return None
        return content.decode("utf-8", "surrogatepass")

    def sign(self, owner: str, *texts: str) -> str:
        """A signature that shows that this process gave these texts to this owner: 32 characters."""
        content = dumps([owner, *texts]).encode()
        return blake2b(content, key=self._key, digest_size=_DIGEST, person=b"signature").hexdigest()


def _digest(key: bytes, owner: str, content: bytes) -> bytes:
    name = owner.encode("utf-8", "surrogatepass")
    # Preceded by the name's length, so that no part of the name can be taken for text.
    return blake2b(b"%d:%b%b" % (len(name), name, content), key=key, digest_size=_DIGEST).digest()
