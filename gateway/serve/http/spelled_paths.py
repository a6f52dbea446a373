"""Turns the ways in which clients spell the paths of `/v1` into one, before anything reads the path.

Base addresses are given with a slash at their end, without `/v1`, or with a `/v1` that the client adds once more. It
knows which paths llama-server serves without `/v1` too; it does not know whether anybody serves what comes out.
"""

import re
from collections.abc import Awaitable
from functools import lru_cache
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

_SLASHES: Final = re.compile("/{2,}")
_BARE: Final = re.compile(r"/(chat/completions|responses|messages|models)(/|$)")
_ROOT: Final = "/v1"
_ROOTS: Final = re.compile(r"(?:/v1)+(?=/v1/)")


# A client sends one path again and again. Sixteen of the longest that a head may hold are 1 MiB.
@lru_cache(maxsize=16)
def path_as_served(path: str) -> str:
    """Give the path that is meant."""
    one = _SLASHES.sub("/", path) if "//" in path else path
    # All at once: a head may hold thousands.
    if repeated := _ROOTS.match(one):
        one = one[repeated.end() :]
    if _BARE.match(one):
        one = f"{_ROOT}{one}"
    return one.rstrip("/") if one.startswith(f"{_ROOT}/") else one


class SpelledPaths:
    """An app whose requests have the paths that are meant."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on."""
        if scope["type"] == "http" and (path := path_as_served(scope["path"])) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        return self._app(scope, receive, send)
