"""Access tokens of an OAuth 2.1 authorization server: whose they are, and what they allow here.

Turns a JWT (RFC 9068) into an identity. The token must be signed by a key that the configured issuer publishes, be
meant for this gateway (`aud`, RFC 8707), and be neither expired nor not yet valid. Its scopes become the principal's
view: `mcp:server:NAME` (`*`: all) says which servers exist for it, `mcp:tool:NAME` narrows that to tools, like the two
lists of an API key. Checked tokens are remembered until they expire. It fetches nothing itself.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

import jwt

from gateway.config.access import OAuthConfig
from gateway.proxy.caller import CallerToken, Principal
from gateway.serve.auth.identity import (
    SUBJECT_PREFIX,
    Allowance,
    CredentialRefused,
    Identity,
    MustWait,
    ScopeMissing,
    owner_of_subject,
)
from gateway.serve.auth.jwks import IssuerKeys
from gateway.serve.auth.rate_limiter import SignatureChecks

LONGEST_TOKEN: Final = 16 * 1024
_LONGEST_SUBJECT: Final = 256
_REMEMBERED: Final = 16_384
_OF_ONE_TOKEN: Final = frozenset({"exp", "iat", "nbf", "jti"})
"""Claims in which tokens that renew each other differ."""

_REASONS: Final[tuple[tuple[type[jwt.PyJWTError], str, str], ...]] = (
    (jwt.ExpiredSignatureError, "expired", "the token has expired"),
    (jwt.ImmatureSignatureError, "expired", "the token is not valid yet"),
    (jwt.InvalidAudienceError, "audience", "the token is not for this gateway"),
    (jwt.InvalidIssuerError, "issuer", "the token is not from the issuer that this gateway trusts"),
    (jwt.MissingRequiredClaimError, "claims", "the token lacks one of exp, iss and aud"),
    (jwt.InvalidSignatureError, "signature", "the token's signature is wrong"),
)


class _Good(NamedTuple):
    """A token that was checked."""

    identity: Identity
    until: float
    kid: str | None
    algorithm: str


class TokenVerifier:
    """Checks the access tokens of one issuer."""

    def __init__(self, config: OAuthConfig, keys: IssuerKeys, checks: SignatureChecks | None = None) -> None:
        """`keys` are the issuer's; `checks` limits the signatures checked a second."""
        self._config = config
        self._keys = keys
        self._checks = SignatureChecks() if checks is None else checks
        self._good: OrderedDict[bytes, _Good] = OrderedDict()

    def reads(self, credential: str) -> bool:
        """Whether it has the form of a JWT, which API keys and tokens chosen by a person don't have."""
        if credential.count(".") != 2 or len(credential) > LONGEST_TOKEN:
            return False
        try:
            return "alg" in _header_of(credential)
        except CredentialRefused:
            return False

    def remembered(self, digest: bytes) -> Identity | None:
        """Whose token has this SHA-256; None unless it was found good before, has not expired, and its key is still
        published.
        """
        found = self._good.get(digest)
        if found is None or not self._keys.holds(found.kid, found.algorithm):
            return None
        if _now() < found.until:
            self._good.move_to_end(digest)
            return found.identity
        del self._good[digest]
        return None

    async def verify(self, token: str, digest: bytes) -> Identity:
        """Whose token it is; `digest` is its SHA-256.

        Raises:
            CredentialRefused: it is not valid here. `ScopeMissing`: it is valid, but allows nothing.
            CannotTell: the issuer's keys can't be fetched. `MustWait`: too many signatures were checked just before.
        """
        header = _header_of(token)
        algorithm: object = header.get("alg")
        # Before anything else: no key is ever looked up for an algorithm that is not on the list (RFC 8725 §3.1).
        if not isinstance(algorithm, str) or algorithm not in self._config.algorithms:
            raise CredentialRefused("algorithm", "the token is signed in a way that this gateway does not accept")
        kid: str | None = header.get("kid")
        key = await self._keys.key(kid, algorithm)
        if wait := self._checks.take():
            raise MustWait(wait)
        claims = self._claims(token, key, algorithm)
        identity = Identity(self._principal(claims), Allowance(self._config.rate, self._config.concurrency))
        self._remember(digest, _Good(identity, float(min(int(claims["exp"]), 2**53)), kid, algorithm))
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
        except (ValueError, RecursionError):
            raise CredentialRefused("claims", "the token's claims can't be read") from None

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
        owner = owner_of_subject(self._config.issuer, subject)
        return Principal(SUBJECT_PREFIX + subject, view, tools or None, owner=owner, token=self._token(claims))

    def _token(self, claims: Mapping[str, Any]) -> CallerToken:
        expires = float(min(int(claims["exp"]), 2**53)) + self._config.leeway
        try:
            rights = rights_of(claims)
        except RecursionError:
            raise CredentialRefused("claims", "the token's claims can't be read") from None
        return CallerToken(rights, expires, (self._config.issuer, self._config.audience))

    def _remember(self, digest: bytes, good: _Good) -> None:
        if len(self._good) >= _REMEMBERED:
            self._good.popitem(last=False)
        self._good[digest] = good


def scopes_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """The scopes that a token grants, from `scope` (RFC 9068 §2.2.3) and `scp`: issuers write a text or a list."""
    found: list[str] = []
    for key in ("scope", "scp"):
        value: object = claims.get(key)
        if isinstance(value, str):
            found += value.split()
        elif isinstance(value, list):
            found += [each for each in cast("list[object]", value) if isinstance(each, str)]
    return tuple(found)


def rights_of(claims: Mapping[str, Any]) -> str:
    """A digest of all that a token says but its times and its number."""
    said = {key: value for key, value in claims.items() if key not in _OF_ONE_TOKEN}
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _after(front: str, scopes: tuple[str, ...]) -> list[str]:
    return [scope.removeprefix(front) for scope in scopes if scope.startswith(front) and len(scope) > len(front)]


def _header_of(token: str) -> dict[str, Any]:
    try:
        return jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise CredentialRefused("malformed", "the token is not a signed JWT") from error


def _refused(error: jwt.PyJWTError) -> CredentialRefused:
    for kind, word, detail in _REASONS:
        if isinstance(error, kind):
            return CredentialRefused(word, detail)
    return CredentialRefused("malformed", "the token can't be read")


def _now() -> float:
    """Seconds since the epoch, the unit of `exp`."""
    return datetime.now(UTC).timestamp()
