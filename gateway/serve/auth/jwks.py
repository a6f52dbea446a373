"""The public keys of an authorization server, fetched only when they are needed.

Turns the configured issuer into keys by id (RFC 7517), through its metadata (RFC 8414, OpenID Connect Discovery) if no
address of the keys is configured. One fetch runs at a time, bounded in time and size, without redirects. An unknown key
id causes a new fetch, but a stranger who makes up ids can't cause more than one in `FLOOR` seconds. It knows no tokens.
"""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final, cast
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
from pydantic_core import from_json

from gateway.config.access import OAuthConfig, is_secure
from gateway.config.address import is_http_url
from gateway.observe.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.serve.auth.identity import CannotTell, CredentialRefused

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
