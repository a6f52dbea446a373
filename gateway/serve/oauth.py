"""Access tokens of an OAuth 2.1 authorization server: whose they are, and what they allow here.

Turns a JWT (RFC 9068) into an identity: signed by a key that the configured issuer publishes, for this gateway (`aud`,
RFC 8707), not over and not too early. Its scopes become the principal's view: `mcp:server:NAME` (`*`: all) says which
servers exist for it, `mcp:tool:NAME` narrows that to tools, as the two lists of an API key do. What was checked is
remembered for a minute. It fetches nothing itself. `jwks.py` below; `bearer.py` above.
"""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import jwt

from gateway.config.access import OAuthConfig
from gateway.proxy.caller import Principal
from gateway.serve.identity import Allowance, CredentialRefused, Identity, ScopeMissing
from gateway.serve.jwks import IssuerKeys

NAME_PREFIX: Final = "oauth:"
"""Front of a subject's name in the audit log and in limits; no API key can be called so."""
LONGEST_TOKEN: Final = 16 * 1024
_LONGEST_SUBJECT: Final = 256
_REMEMBERED: Final = 4096
_REMEMBERED_FOR: Final = 60.0

_REASONS: Final[tuple[tuple[type[jwt.PyJWTError], str, str], ...]] = (
    (jwt.ExpiredSignatureError, "expired", "the token has expired"),
    (jwt.ImmatureSignatureError, "expired", "the token is not valid yet"),
    (jwt.InvalidAudienceError, "audience", "the token is not for this gateway"),
    (jwt.InvalidIssuerError, "issuer", "the token is not from the issuer that this gateway trusts"),
    (jwt.MissingRequiredClaimError, "claims", "the token lacks one of exp, iss and aud"),
    (jwt.InvalidSignatureError, "signature", "the token's signature is wrong"),
)


class TokenVerifier:
    """Checks the access tokens of one issuer."""

    def __init__(self, config: OAuthConfig, keys: IssuerKeys) -> None:
        """`keys` are the issuer's."""
        self._config = config
        self._keys = keys
        self._good: OrderedDict[bytes, tuple[Identity, float]] = OrderedDict()

    def reads(self, credential: str) -> bool:
        """Whether it has the three parts of a signed JWT, which no key of ours has."""
        return credential.count(".") == 2 and len(credential) <= LONGEST_TOKEN

    def remembered(self, digest: bytes) -> Identity | None:
        """Whose token has this SHA-256, if it was good less than a minute ago and has not expired since."""
        found = self._good.get(digest)
        if found is None:
            return None
        identity, until = found
        if _now() < until:
            return identity
        del self._good[digest]
        return None

    async def verify(self, token: str, digest: bytes) -> Identity:
        """Whose token it is; `digest` is its SHA-256.

        Raises:
            CredentialRefused: it is not good here. `ScopeMissing`: it is, but allows nothing.
            CannotTell: the issuer's keys can't be had.
        """
        header = _header_of(token)
        algorithm: object = header.get("alg")
        # Before anything else: no key is ever looked at for an algorithm that is not on the list (RFC 8725 §3.1).
        if not isinstance(algorithm, str) or algorithm not in self._config.algorithms:
            raise CredentialRefused("algorithm", "the token is signed in a way that this gateway does not accept")
        key = await self._keys.key(header.get("kid"), algorithm)
        claims = self._claims(token, key, algorithm)
        identity = Identity(self._principal(claims), Allowance(self._config.rate, self._config.concurrency))
        self._remember(digest, identity, min(float(min(int(claims["exp"]), 2**53)), _now() + _REMEMBERED_FOR))
        return identity

    def _claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._config.audience,
                issuer=self._config.issuer,
                leeway=self._config.leeway,
                options={"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True},
            )
        except jwt.PyJWTError as error:
            raise _refused(error) from None

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        subject: object = next((claims[key] for key in ("sub", "client_id", "azp") if claims.get(key)), None)
        if not isinstance(subject, str) or len(subject) > _LONGEST_SUBJECT or not subject.isprintable():
            raise CredentialRefused("claims", "the token names no subject in sub, client_id or azp")
        prefix = self._config.scope_prefix
        scopes = scopes_of(claims)
        servers = _after(f"{prefix}:server:", scopes)
        tools = tuple(_after(f"{prefix}:tool:", scopes))
        if not servers:
            raise ScopeMissing(f"the token has no scope {prefix}:server:NAME")
        view = None if "*" in servers else frozenset(servers)
        return Principal(NAME_PREFIX + subject, view, tools or None)

    def _remember(self, digest: bytes, identity: Identity, until: float) -> None:
        if len(self._good) >= _REMEMBERED:
            self._good.popitem(last=False)
        self._good[digest] = (identity, until)


def scopes_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The scopes that a token grants: `scope` (RFC 9068 §2.2.3) or `scp`, as one text or as a list, as issuers do."""
    found: list[str] = []
    for key in ("scope", "scp"):
        value: object = claims.get(key)
        if isinstance(value, str):
            found += value.split()
        elif isinstance(value, list):
            found += [each for each in cast(list[object], value) if isinstance(each, str)]
    return tuple(found)


def _after(front: str, scopes: tuple[str, ...]) -> list[str]:
    return [scope.removeprefix(front) for scope in scopes if scope.startswith(front) and len(scope) > len(front)]


def _header_of(token: str) -> dict[str, Any]:
    try:
        return jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise CredentialRefused("malformed", "the token is no signed JWT") from error


def _refused(error: jwt.PyJWTError) -> CredentialRefused:
    for kind, word, detail in _REASONS:
        if isinstance(error, kind):
            return CredentialRefused(word, detail)
    return CredentialRefused("malformed", "the token can't be read")


def _now() -> float:
    """Seconds since the epoch, which is what `exp` counts in."""
    return datetime.now(UTC).timestamp()
