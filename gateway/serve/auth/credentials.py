"""Is this credential good? The gateway's own token, the API keys and the access tokens in one place.

Turns the text after `Bearer` into an identity. What can't be guessed (256 random bits, or a signature that was checked
before) is looked up first, by its SHA-256: what a table of hashes tells by its timing helps nobody to find a key, and
no key contains its name. A signature that is new can't be guessed either. What is left may be a guess, and is checked
apart, so that `bearer.py` can slow guessing down without locking out who holds a key or an access token.
"""

from hmac import compare_digest
from typing import Final, Protocol

from gateway.serve.auth.identity import OPERATOR, CredentialRefused, Identity
from gateway.serve.auth.key_file import KeyRing
from gateway.serve.auth.keys import digest_of

UNGUESSABLE: Final = 32
"""Characters of a token that nobody finds by trying, if it is random; the generated one has 43."""


_UNKNOWN: Final = "this token is unknown here: `codec-gateway token` and `codec-gateway keys list` show what there is"


class AccessTokens(Protocol):
    """What `oauth.py` does. A seam, so that a gateway without an issuer loads no cryptography."""

    def reads(self, credential: str) -> bool:
        """Whether it has the form of an access token: then it is no guess of anything else."""
        ...

    def remembered(self, digest: bytes) -> Identity | None:
        """Whose token has this SHA-256, if it was checked before and is still good."""
        ...

    async def verify(self, token: str, digest: bytes) -> Identity:
        """Whose token it is. Raises `CredentialRefused`."""
        ...


class Credentials:
    """Every credential that this gateway accepts."""

    def __init__(
        self, token: str | None = None, keys: KeyRing | None = None, oauth: AccessTokens | None = None
    ) -> None:
        """`token`: the operator's."""
        self._token = None if token is None else digest_of(token)
        self._strong = token is not None and len(token) >= UNGUESSABLE
        self._keys = keys
        self._oauth = oauth

    def follow(self) -> bool:
        """Take over what changed in the key file. Gives whether anybody is asked for a credential."""
        if self._keys is not None:
            self._keys.follow()
        return self._token is not None or self._oauth is not None or (self._keys is not None and self._keys.in_use)

    def recognise(self, digest: bytes) -> Identity | None:
        """Whose credential has this SHA-256, if it is one that can't be guessed.

        Raises:
            CredentialRefused: it was good once.
        """
        if self._strong and self._is_ours(digest):
            return OPERATOR
        if self._keys is not None and (identity := self._keys.find(digest)) is not None:
            return identity
        return None if self._oauth is None else self._oauth.remembered(digest)

    async def verify(self, credential: str, digest: bytes) -> Identity | None:
        """Whose access token it is, if `recognise` did not know it; None where it is none by its form.

        Raises:
            CredentialRefused: nobody's, or as `oauth.py` says.
        """
        if self._oauth is None or not self._oauth.reads(credential):
            return None
        return await self._oauth.verify(credential, digest)

    def check_guess(self, digest: bytes) -> Identity:
        """Whose credential it is, if it is neither known nor an access token.

        Raises:
            CredentialRefused: nobody's.
        """
        if not self._strong and self._is_ours(digest):
            return OPERATOR
        raise CredentialRefused("unknown", _UNKNOWN)

    def _is_ours(self, digest: bytes) -> bool:
        return self._token is not None and compare_digest(digest, self._token)
