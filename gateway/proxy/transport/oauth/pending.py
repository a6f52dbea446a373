"""Sign-ins of users that have begun: kept until their browser comes back, for a quarter of an hour, and used once.

Turns a sign-in into a sealed file in the folder of the sign-ins, so that each worker of this machine can finish what
another one began, and the `state` of a redirect back into the sign-in. Taking it needs the secret of the browser that
began it; of two that take it at the same time, one gets it. It sends nothing.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, cast

from gateway.proxy.transport.oauth.client import Client
from gateway.proxy.transport.oauth.code_flow import CodeFlow
from gateway.proxy.transport.oauth.grant_store import GrantKey, GrantStore
from gateway.proxy.transport.oauth.metadata import AuthorizationServer
from gateway.shared.packing import packed, unpacked

LIFE: Final = 900
"""Seconds that a person has to sign in."""
_PURPOSE: Final = "begun"
_MOST: Final = 8
"""Sign-ins that one owner may have begun; one more ends the oldest."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in whose browser is at the authorization server."""

    key: GrantKey
    secret: str = field(repr=False)
    """The value of a cookie (`cookie_of`) of the browser that began it."""
    flow: CodeFlow


class PendingSignIns:
    """The sign-ins of one machine that have begun."""

    def __init__(self, store: GrantStore) -> None:
        self._store = store

    def keep(self, begun: Begun) -> None:
        """Keep it until its redirect comes. Raises `ConfigError` if it can't be written."""
        self._make_room(begun.key.owner)
        record = [self._now(), astuple(begun.key), begun.secret, astuple(begun.flow)]
        self._store.seal_file(_PURPOSE, "", self._path(begun.key.owner, begun.flow.state), packed(record))

    def take(self, state: str, cookies: Mapping[str, str]) -> Begun | None:
        """The sign-in, which nobody can take again; None: there is none with this state that this browser began.

        Args:
            cookies: those of the browser.
        """
        for path in self._store.folder.glob(self._path("*", state).name):
            found = self._read(path)
            if found is None:
                return None
            given = cookies.get(cookie_of(found.flow), "")
            if not compare_digest(found.secret.encode(), given.encode("utf-8", "replace")):
                return None
            with suppress(FileNotFoundError):
                path.unlink()
                return found
        return None

    def _read(self, path: Path) -> Begun | None:
        with suppress(FileNotFoundError, TypeError, ValueError):
            if (plain := self._store.open_file(_PURPOSE, "", path)) is None:
                return None
            began, key, secret, (server, client, *rest) = cast("list[Any]", unpacked(plain))
            if self._now() - began <= LIFE:
                flow = CodeFlow(_server_of(server), Client(*client), *rest)
                return Begun(GrantKey(*key), secret, flow)
        return None

    def _make_room(self, owner: str) -> None:
        mine, left = self._path(owner, "").name, list[tuple[float, Path]]()
        for path in self._store.folder.glob(f"{_PURPOSE}-*"):
            with suppress(FileNotFoundError):
                written = path.stat().st_mtime
                if self._now() - written > LIFE:
                    path.unlink()
                elif path.name.startswith(mine):
                    left.append((written, path))
        for _, path in sorted(left)[: max(0, len(left) - _MOST + 1)]:
            path.unlink(missing_ok=True)

    def _path(self, owner: str, state: str) -> Path:
        """`owner` `*`: anybody; `state` empty: what the names of all that the owner began begin with."""
        whose = owner if owner == "*" else self._store.digest(_PURPOSE, owner)
        return self._store.folder / f"{_PURPOSE}-{whose}.{self._store.digest(_PURPOSE, state) if state else ''}"

    def _now(self) -> float:
        return datetime.now(UTC).timestamp()


def cookie_of(flow: CodeFlow) -> str:
    """The name of the cookie that binds a sign-in to the browser that began it.

    Over https, only this very host can set it (RFC 6265bis, 4.1.3), so nobody can plant their own in another browser.
    """
    is_secure = flow.redirect_uri.startswith("https:")
    return f"{'__Host-' if is_secure else ''}codec-sign-in-{sha256(flow.state.encode()).hexdigest()[:16]}"


def _server_of(values: list[Any]) -> AuthorizationServer:
    made = AuthorizationServer(*values)
    return replace(made, scopes=tuple(made.scopes))
