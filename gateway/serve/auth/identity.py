"""Who a request comes from, as a checked credential says, and how much they may ask.

What `keys.py` and `oauth.py` make of a credential, and what `bearer.py` hands on: the principal to the packages below,
the allowance to `rate_limiter.py`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Scope

from gateway.proxy.caller import ANYBODY, Principal

if TYPE_CHECKING:
    from collections.abc import Callable

PRINCIPAL: Final = "principal"
"""Key in a request's ASGI state: the `Principal` on whose behalf it comes."""
LIMITED: Final = "limited"
"""Key in a request's ASGI state: there where the requests of its caller are counted."""
FULL: Final = "full"
"""Key in a request's ASGI state: there where as many requests of its caller run as may; makes another's refusal."""
OPERATOR_NAME: Final = "operator"
RESERVED_NAMES: Final = frozenset({OPERATOR_NAME, "anonymous"})
"""Names of principals that no key may bear: the audit log would not tell them apart."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much one principal may ask; 0: any number."""

    rate: int = 0
    """Requests a minute; as many may come at once after a quiet minute."""
    concurrency: int = 0
    """Requests that run at a time."""

    @property
    def is_free(self) -> bool:
        """Whether there is no limit at all."""
        return not self.rate and not self.concurrency


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller whose credential was good."""

    principal: Principal
    allowance: Allowance = field(default_factory=Allowance)


OPERATOR: Final = Identity(Principal(OPERATOR_NAME, alone=True))
"""Who holds the gateway's own token: everything, without limits."""


def principal_of(scope: Scope) -> Principal:
    """On whose behalf a request comes, as `bearer.py` found."""
    state: dict[str, object] = scope.get("state") or {}
    principal = state.get(PRINCIPAL)
    return principal if isinstance(principal, Principal) else ANYBODY


def is_limited(scope: Scope) -> bool:
    """Whether the caller's requests are counted: one that holds several would count as one."""
    return LIMITED in (scope.get("state") or {})


def refusal_of_another(scope: Scope) -> ASGIApp | None:
    """What answers a request that would begin something; None: it may. One that only says something may always."""
    state: dict[str, Callable[[], ASGIApp]] = scope.get("state") or {}
    return state[FULL]() if FULL in state else None


class CredentialRefused(Exception):
    """A credential that is not good. `kind` is for the metric and tells nothing to the client; `detail` is for it."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class ScopeMissing(CredentialRefused):
    """A good token that allows nothing here (RFC 6750 §3.1, `insufficient_scope`)."""

    def __init__(self, detail: str) -> None:
        super().__init__("scope", detail)


class CannotTell(CredentialRefused):
    """Whether the credential is good can't be told now: the issuer's keys can't be had."""

    def __init__(self, detail: str) -> None:
        super().__init__("issuer", detail)


class MustWait(CredentialRefused):
    """Whether the credential is good is not looked at now: too many signatures were checked just before."""

    def __init__(self, wait: float) -> None:
        super().__init__("signatures", "too many access tokens are being checked: ask again later")
        self.wait = wait
