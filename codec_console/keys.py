"""One-time keys, which are part of the URL by which an operator signs in.

A key is the time at which it was made, a random part, and a signature of both (HMAC-SHA256) with a secret that the
gateway knows. Whoever holds the secret can make keys, without sending the secret to anybody: a program that has taken
over the gateway's port learns no more than one key. Pure.
"""

import base64
import hmac
import secrets
from typing import Final

LIFETIME: Final = 600.0
"""Seconds for which a key is valid."""
_NOTE: Final = b"codec-gateway console\0"
"""Prefix of what is signed; nothing but keys is ever signed with it."""
_LONGEST: Final = 200
_LATE: Final = 5.0
"""Seconds by which a key may seem to come from the future, since clocks get adjusted."""
_THOUSAND: Final = 1000


def make_key(secret: str, now: float) -> str:
    """Return a new key. `now`: seconds since the epoch."""
    signed = f"{round(now * _THOUSAND)}.{secrets.token_urlsafe(16)}"
    return f"{signed}.{_signature(secret, signed)}"


def time_of(key: str, secret: str) -> float | None:
    """When this key was made, in seconds since the epoch; None unless a holder of the secret made it."""
    signed, _, signature = key.rpartition(".")
    made = signed.partition(".")[0]
    if len(key) > _LONGEST or not key.isascii() or not made.isdecimal():
        return None
    return int(made) / _THOUSAND if hmac.compare_digest(signature, _signature(secret, signed)) else None


def is_fresh(made: float, now: float, started: float) -> bool:
    """Whether a key made at this time is valid: made since the gateway started, and not too long ago."""
    return started <= made + 1 / _THOUSAND and made - _LATE <= now <= made + LIFETIME


def _signature(secret: str, signed: str) -> str:
    digest = hmac.digest(secret.encode(), _NOTE + signed.encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
