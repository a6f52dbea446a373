"""Is this credential good? The gateway's own token, the API keys and the access tokens in one place.

Turns the text after `Bearer` into an identity. Credentials that can't be guessed (256 random bits, or a signature that
was checked before) are looked up first, by their SHA-256: the timing of a lookup among hashes helps nobody to find a
key, and a key does not contain its name. A new signature can't be guessed either. Anything else may be a guess and is
checked separately, so that `bearer.py` can slow guessing down without locking out holders of keys and access tokens.
"""

from hmac import compare_digest
from typing import Final, Protocol

from gateway.serve.auth.api_keys import KeyRing, digest_of
from gateway.serve.auth.identity import OPERATOR, CredentialRefused, Identity

UNGUESSABLE: Final = 32
"""Characters from which on a random token can't be found by trying; the generated one has 43."""


_UNKNOWN: Final = (
    "unknown credential: see `codec-gateway token` for the gateway's token, `codec-gateway keys list` for keys"
)


class AccessTokens(Protocol):
    """The interface of `oauth.py`, separate so that a gateway without an issuer loads no cryptography."""

    def reads(self, credential: str) -> bool:
        """Whether it has the form of an access token, and so can't be a guess at another credential."""
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
        """`token`: the operator's; None: there is none."""
        self._token = None if token is None else digest_of(token)
        self._strong = token is not None and len(token) >= UNGUESSABLE
        self._keys = keys
        self._oauth = oauth

    def follow(self) -> bool:
        """Pick up changes of the key file. Returns whether callers need a credential."""
        if self._keys is not None:
            self._keys.follow()
        return self._token is not None or self._oauth is not None or (self._keys is not None and self._keys.in_use)

    def recognise(self, digest: bytes) -> Identity | None:
        """Whose credential has this SHA-256; None if it is unknown or could be guessed.

        Raises:
            CredentialRefused: it is a key that has expired.
        """
        if self._strong and self._is_ours(digest):
            return OPERATOR
        if self._keys is not None and (identity := self._keys.find(digest)) is not None:
            return identity
        return None if self._oauth is None else self._oauth.remembered(digest)

    async def verify(self, credential: str, digest: bytes) -> Identity | None:
        """Whose access token it is, where `recognise` did not know it; None if it does not look like an access token.

        Raises:
            CredentialRefused: the token is refused; see `TokenVerifier.verify` in `oauth.py`.
        """
        if self._oauth is None or not self._oauth.reads(credential):
            return None
        return await self._oauth.verify(credential, digest)

    def check_guess(self, digest: bytes) -> Identity:
        """Whose credential it is, where `recognise` did not know it and it is not an access token.

        Raises:
            CredentialRefused: it is nobody's.
        """
        if not self._strong and self._is_ours(digest):
            return OPERATOR
        raise CredentialRefused("unknown", _UNKNOWN)

    def _is_ours(self, digest: bytes) -> bool:
        return self._token is not None and compare_digest(digest, self._token)
