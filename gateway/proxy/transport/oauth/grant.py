"""What is kept of a sign-in: the tokens, where they come from, and what they are for.

Turns a grant into bytes and back. Pure; `grant_store.py` seals the bytes.
"""

from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final, cast

from gateway.proxy.transport.oauth.client import Client
from gateway.proxy.transport.oauth.tokens import Tokens
from gateway.shared.packing import packed, unpacked

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Grant:
    """One person's permission to use one MCP server."""

    issuer: str
    token_endpoint: str
    revocation_endpoint: str | None
    client: Client
    resource: str
    """What the tokens are for (RFC 8707); empty: no resource was named."""
    scope: str | None
    """What was granted."""
    access: str | None = field(default=None, repr=False)
    """None: the sign-in has ended; the client and the scopes are kept for the next."""
    refresh: str | None = field(default=None, repr=False)
    expires: float | None = None
    """Seconds since 1970; None: it is not known."""
    missing: str | None = None
    """Scopes that the MCP server asked for since, to be asked for at the next sign-in."""
    sign_in: str = ""
    """Which sign-in it came from: differs after the next one, which another person may have made."""
    version: int = 0
    """Higher with each change, so that replicas can tell which of two is newer. That of new tokens is at least the
    milliseconds since 1970, so that a new sign-in is newer than those before it even where they can't be read."""

    def renewed(self, tokens: Tokens, now: float) -> "Grant":
        """The grant with newly issued tokens. An authorization server need not issue another refresh token."""
        expires = None if tokens.life is None else now + tokens.life
        scope, refresh = tokens.scope or self.scope, tokens.refresh or self.refresh
        issued = replace(self, access=tokens.access, refresh=refresh, expires=expires, scope=scope)
        return issued.after(self, now)

    def ended(self, *, client_too: bool) -> "Grant":
        """The grant after the authorization server ended it. `client_too`: it does not know the client any more."""
        client = self.client.forgotten() if client_too else self.client
        return replace(self, access=None, refresh=None, expires=None, client=client).after(self)

    def after(self, before: "Grant | None", now: float = 0.0) -> "Grant":
        """The same, newer than the one before."""
        return replace(self, version=max(int(now * 1000), self.version, 0 if before is None else before.version + 1))

    def to_bytes(self) -> bytes:
        """As bytes for `from_bytes`."""
        return packed([_FORMAT, *astuple(self)])


def forgotten(now: float) -> Grant:
    """What stands for a sign-in that was forgotten, so that replicas that still have it learn of that."""
    return Grant("", "", None, Client(""), "", None).after(None, now)


def read_grant(data: bytes) -> Grant | None:
    """The grant that `to_bytes` turned into bytes; None: another version did."""
    try:
        form, issuer, token, revocation, client, *rest = cast("list[Any]", unpacked(data))
        return Grant(issuer, token, revocation, Client(*client), *rest) if form == _FORMAT else None
    except (TypeError, ValueError):
        return None
