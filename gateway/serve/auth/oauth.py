"""Access tokens of an OAuth 2.1 authorization server: whose they are, and what they allow here.

Turns a JWT (RFC 9068) into an identity. The token must be signed by a key that the configured issuer publishes, be
meant for this gateway (`aud`, RFC 8707), and be neither expired nor not yet valid. Its scopes become the principal's
view: `mcp:server:NAME` (`*`: all) says which servers exist for it, `mcp:tool:NAME` narrows that to tools, like the two
lists of an API key. Checked tokens are remembered until they expire. It fetches nothing itself.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from time import monotonic
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
from pydantic_core import from_json

from gateway.config.access import OAuthConfig
from gateway.config.address import is_http_url, is_secure
from gateway.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.proxy.caller import CallerToken, Principal
from gateway.serve.auth.identity import (
    SUBJECT_PREFIX,
    Allowance,
    CannotTell,
    CredentialRefused,
    Identity,
    MustWait,
    ScopeMissing,
    owner_of_subject,
)
from gateway.serve.auth.rate_limiter import SignatureChecks

# RFC 7517, RFC 8414, OpenID Connect Discovery. One fetch runs at a time, bounded in time and size, without redirects.
# An unknown key id causes a new fetch, but a stranger who makes up ids can't cause more than one in `FLOOR` seconds.

FRESH: Final = 15 * 60.0
"""Seconds for which fetched keys are used without asking again."""
OLDEST: Final = 24 * 3600.0
"""Seconds after which the keys of an issuer that does not answer are no longer used."""
FLOOR: Final = 30.0
"""The least number of seconds between a fetch and the next one."""
RETRY: Final = 5.0
"""The least number of seconds between a failed fetch and the next one."""
_FETCH_TIME: Final = 10.0
_LARGEST: Final = 512 * 1024
_MOST_KEYS: Final = 100

log = get_logger("serve")


class FetchFailed(Exception):
    """The issuer did not return what was asked for."""


class IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, config: OAuthConfig, clock: Callable[[], float] = monotonic) -> None:
        """Fetch nothing yet: the first token causes the first fetch."""
        self._config = config
        self._clock = clock
        self._lock = anyio.Lock()
        self._keys: dict[tuple[str | None, str], jwt.PyJWK] = {}
        self._fetched = -OLDEST
        self._next = -OLDEST

    async def key(self, kid: str | None, algorithm: str) -> jwt.PyJWK:
        """The key with this id, for this algorithm.

        Raises:
            CredentialRefused: the issuer has no such key.
            CannotTell: the issuer's keys can't be fetched.
        """
        now = self._clock()
        found = self._keys.get((kid, algorithm))
        # While one request fetches the keys again, the others go on with the known ones.
        if found is not None and (now - self._fetched < FRESH or (self._lock.locked() and self._usable())):
            return found
        await self._refresh()
        found = self._keys.get((kid, algorithm))
        if not self._usable():
            raise CannotTell("the authorization server's keys can't be fetched at the moment; try again")
        if found is None:
            raise CredentialRefused("key", "the token is signed with a key that its issuer does not publish")
        return found

    def holds(self, kid: str | None, algorithm: str) -> bool:
        """Whether a signature by this key is still good: as far as is known, the issuer still publishes the key.

        Also False when the keys are due to be fetched again: the caller then calls `key`, which does it for everybody.
        """
        now = self._clock()
        due = now - self._fetched >= FRESH and now >= self._next
        return (kid, algorithm) in self._keys and not due and self._usable()

    def _usable(self) -> bool:
        return self._clock() - self._fetched < OLDEST

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock() < self._next:
                return
            self._next = self._clock() + RETRY
            # When the client that started the fetch leaves, the others that wait for it must still get their answer.
            with anyio.CancelScope(shield=True):
                try:
                    with anyio.fail_after(_FETCH_TIME):
                        self._keys = read_keys(await self._fetch(), self._config.algorithms)
                except (FetchFailed, TimeoutError) as error:
                    reason = escape_text(str(error)) or f"no answer in {_FETCH_TIME:.0f} s"
                    log.warning(
                        "the keys of the OAuth issuer can't be fetched", issuer=self._config.issuer, reason=reason
                    )
                    return
            self._fetched = self._clock()
            self._next = self._fetched + FLOOR

    async def _fetch(self) -> Mapping[str, Any]:
        # A new client for each fetch: fetches are rare, and a kept connection would be stale by the next one.
        async with httpx2.AsyncClient(timeout=_FETCH_TIME, follow_redirects=False) as client:
            return await _get_json(client, self._config.jwks_url or await self._discover(client))

    async def _discover(self, client: httpx2.AsyncClient) -> str:
        failures: list[str] = []
        for url in metadata_urls(self._config.issuer):
            try:
                metadata = await _get_json(client, url)
            except FetchFailed as error:
                failures.append(str(error))
                continue
            found: object = metadata.get("jwks_uri")
            # RFC 8414 §3.3: the metadata must name the issuer that was asked.
            if metadata.get("issuer") != self._config.issuer:
                failures.append(f"{url}: it names another issuer, {str(metadata.get('issuer'))[:100]!r}")
            elif not isinstance(found, str) or not is_http_url(found) or not is_secure(found):
                failures.append(f"{url}: no usable jwks_uri")
            else:
                return found
        raise FetchFailed("; ".join(failures))


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """Where an issuer's metadata may be, in the order in which MCP's authorization specification tries the places."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    inserted = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return (*inserted, f"{origin}{path}/.well-known/openid-configuration") if path else tuple(inserted)


def read_keys(document: Mapping[str, Any], algorithms: Iterable[str]) -> dict[tuple[str | None, str], jwt.PyJWK]:
    """The keys of a JWK set that can verify signatures, by (id, algorithm).

    A key without an id is stored under the id None, and so is the only key for an algorithm, besides its own id. What
    is not a public key for one of the `algorithms` is skipped: a set may hold keys for other uses, and of new kinds.

    Raises:
        FetchFailed: the document is not a JWK set.
    """
    entries: object = document.get("keys")
    if not isinstance(entries, list):
        raise FetchFailed("the JWK set has no list of keys")
    known: dict[tuple[str | None, str], jwt.PyJWK] = {}
    for entry in cast("list[object]", entries)[:_MOST_KEYS]:
        if isinstance(entry, dict):
            jwk = cast("dict[str, Any]", entry)
            known |= {(_id_of(jwk), name): key for name in algorithms if (key := _read_key(jwk, name)) is not None}
    for algorithm in {name for _, name in known}:
        alike = [key for (_, name), key in known.items() if name == algorithm]
        if len(alike) == 1:
            known[None, algorithm] = alike[0]
    return known


def _id_of(jwk: Mapping[str, Any]) -> str | None:
    kid: object = jwk.get("kid")
    return kid if isinstance(kid, str) else None


_KINDS: Final[Mapping[str, tuple[str, str | None]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""By algorithm, the type and curve of its keys (RFC 7518 §3.1, RFC 8037)."""


def _read_key(jwk: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    kind, curve = _KINDS[algorithm]
    fits = jwk.get("kty") == kind and (curve is None or jwk.get("crv") == curve)
    if not fits or jwk.get("alg", algorithm) != algorithm or jwk.get("use", "sig") != "sig" or "d" in jwk:
        return None
    try:
        key = jwt.PyJWK(jwk, algorithm)
        too_short = key.Algorithm.check_key_length(key.key)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return None if too_short else key


async def _get_json(client: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    try:
        async with client.stream("GET", url, headers={"accept": "application/json"}) as response:
            if response.status_code != 200:
                raise FetchFailed(f"{url}: status {response.status_code}")
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _LARGEST:
                    raise FetchFailed(f"{url}: more than {_LARGEST} bytes")
        value: object = from_json(bytes(body))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise FetchFailed(f"{url}: {type(error).__name__}") from None
    except ValueError:
        raise FetchFailed(f"{url}: not JSON") from None
    if not isinstance(value, dict):
        raise FetchFailed(f"{url}: not a JSON object")
    return cast("dict[str, Any]", value)


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
