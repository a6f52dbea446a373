"""Who sent a request, according to a checked credential, and how much they may ask.

`api_keys.py` and `oauth.py` turn credentials into identities; `bearer.py` hands the principal to the packages below and
the allowance to `rate_limiter.py`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Scope

from gateway.proxy.caller import Principal

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITED: Final = "limited"
"""Key in a request's ASGI state, present if its caller's requests are counted."""
FULL: Final = "full"
"""Key in a request's ASGI state, present if its caller runs as many requests as allowed: a function that makes the
refusal of one more."""
OPERATOR_NAME: Final = "operator"
RESERVED_NAMES: Final = frozenset({OPERATOR_NAME, "anonymous"})
"""Names of principals that no key may have: the audit log could not tell them apart."""
SUBJECT_PREFIX: Final = "oauth:"
"""Prefix of a subject's name in the audit log and in limits. No API key may have a name that starts with it."""


def owner_of_subject(issuer: str, subject: str) -> str:
    """Whose sign-ins at servers are used (`Principal.owner`): a subject of another issuer is somebody else."""
    return f"{SUBJECT_PREFIX}{issuer} {subject}"


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much one principal may ask; 0 means no limit."""

    rate: int = 0
    """Requests a minute; after a quiet minute, that many may come at once."""
    concurrency: int = 0
    """Requests that may run at the same time."""

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
"""The holder of the gateway's own token, who may do everything, without limits."""


def is_limited(scope: Scope) -> bool:
    """Whether the caller's requests are counted. An HTTP request with several in it would count as one."""
    return LIMITED in (scope.get("state") or {})


def refusal_over_limit(scope: Scope) -> ASGIApp | None:
    """The answer to a request that would start something over the limit; None if it may start.

    Messages that start nothing are always allowed.
    """
    state: dict[str, Callable[[], ASGIApp]] = scope.get("state") or {}
    return state[FULL]() if FULL in state else None


class CredentialRefused(Exception):
    """A credential that is not good. `kind` is the metric's label and is not shown to the client; `detail` is."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class ScopeMissing(CredentialRefused):
    """A valid token that allows nothing here (RFC 6750 §3.1, `insufficient_scope`)."""

    def __init__(self, detail: str) -> None:
        super().__init__("scope", detail)


class CannotTell(CredentialRefused):
    """A credential that can't be checked now, because the issuer's keys can't be fetched."""

    def __init__(self, detail: str) -> None:
        super().__init__("issuer", detail)


class MustWait(CredentialRefused):
    """A credential that is not checked now, because too many signatures were checked just before."""

    def __init__(self, wait: float) -> None:
        super().__init__("signatures", "too many access tokens are being checked: try again later")
        self.wait = wait
