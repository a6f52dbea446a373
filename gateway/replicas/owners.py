"""Names of what lives in one replica: a session, a call that waits for its client, or a stored response.

A name is sealed (`keys.py`). It says in which process the thing lives, and for whom it was made. From the name alone,
any replica can tell where a request belongs: here, in another replica, or nowhere. No IO.
"""

import hashlib
import secrets
from functools import lru_cache
from typing import Final

from gateway.replicas.interface import Purpose, Replica
from gateway.replicas.keys import ReplicaKeys

_BOOT: Final = 8
_OWNER: Final = 16
_RANDOM: Final = 16
_LONGEST: Final = 1024
"""Characters of the longest name that is read."""


class OwnedNames:
    """Makes this replica's names, and reads those of all replicas."""

    def __init__(self, keys: ReplicaKeys, address: str) -> None:
        """`address`: HOST:PORT at which the others reach this replica."""
        self._keys = keys
        self.me = Replica(address, secrets.token_bytes(_BOOT))
        # Cached because a session's name comes with each of its requests.
        self._owner = lru_cache(maxsize=4096)(self._read)

    def new(self, purpose: Purpose, principal: str) -> str:
        """A new unguessable name for something of this principal that lives here."""
        plain = self.me.boot + _digest(principal) + secrets.token_bytes(_RANDOM) + self.me.address.encode()
        return self._keys.seal(purpose, plain)

    def elsewhere(self, purpose: Purpose, name: str, principal: str) -> Replica | None:
        """The other replica that has what a name stands for; None: this one, or it is not a name of the principal."""
        if len(name) > _LONGEST:
            return None
        owner = self._owner(purpose, name, principal)
        return None if owner is None or owner.address == self.me.address else owner

    def _read(self, purpose: Purpose, name: str, principal: str) -> Replica | None:
        plain = self._keys.opened(purpose, name)
        if plain is None:
            return None
        boot, owner, address = plain[:_BOOT], plain[_BOOT : _BOOT + _OWNER], plain[_BOOT + _OWNER + _RANDOM :]
        if not secrets.compare_digest(owner, _digest(principal)):
            return None
        return Replica(address.decode(), boot)


def _digest(principal: str) -> bytes:
    return hashlib.sha256(principal.encode("utf-8", "surrogatepass")).digest()[:_OWNER]
