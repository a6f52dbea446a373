"""Which of the gateway's own environment variables the program of a stdio server inherits.

Turns `inherit_env` and an environment into the variables that are passed on. Without a setting these are the few that a
program needs to run, and those by which it finds its way out of a network with a proxy or a certificate authority of
its own: without them it could reach nothing there. No secret is passed on that is not asked for. Pure.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

PROGRAM: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""MCP's own list, and the locale."""
_PROXY: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
NETWORK: Final = (
    *_PROXY,
    *(name.lower() for name in _PROXY),
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "CURL_CA_BUNDLE",
)
"""Proxies and certificates, as the usual HTTP libraries read them."""
_OWN: Final = "CODEC_"
"""The gateway's own variables, its token among them: only their whole names pass them on."""


def inherited(inherit: bool | tuple[str, ...], outer: Mapping[str, str]) -> dict[str, str]:
    """The variables of `outer` that a server inherits.

    Args:
        inherit: names and patterns (`*`, `?`) of more variables than usual; true: all; false: not even the network's.
    """
    usual = PROGRAM if inherit is False else (*PROGRAM, *NETWORK)
    patterns = ("*",) if inherit is True else inherit or ()
    return {
        name: value
        for name, value in outer.items()
        if name in usual or any(name == each or _fits(name, each) for each in patterns)
    }


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and not name.startswith(_OWN)
