"""What is kept of a sign-in, and where: sealed, on disk, for the gateway's own user only."""

import fcntl
import os
import secrets
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from gateway.config.state import replace_private, state_folder
from gateway.errors import ConfigError
from gateway.proxy.transport.oauth.code_flow import Client
from gateway.proxy.transport.oauth.token_endpoint import Tokens
from gateway.proxy.transport.transport_interface import NoAnswer
from gateway.shared import Shared
from gateway.shared.store_interface import packed, unpacked

if TYPE_CHECKING:
    from gateway.shared.store_records import StoreKeys


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
    reusable: bool = False
    """Whether its refresh token has outlived a renewal: whoever uses it again spends nothing."""

    def renewed(self, tokens: Tokens, now: float) -> "Grant":
        """The grant with newly issued tokens. An authorization server need not issue another refresh token."""
        expires = None if tokens.life is None else now + tokens.life
        scope, refresh = tokens.scope or self.scope, tokens.refresh or self.refresh
        issued = replace(self, access=tokens.access, refresh=refresh, expires=expires, scope=scope)
        issued = replace(issued, reusable=refresh == self.refresh)
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


# One file for each owner and MCP server in the folder `sign-ins` of the state folder, and the key that opens them, with
# mode 0600. A file is bound to its owner, server and URL: one that was moved, changed or made with another key counts
# as missing. Where replicas have a shared store, it holds each sign-in, too, and the newer one replaces the other; a
# lease there keeps two replicas from changing one at the same time.

_PURPOSE: Final = "sign-in"
_KEY_BYTES: Final = 32
_TOO_OPEN: Final = 0o077
_PAUSE: Final = 0.05
_SHARED_LIFE: Final = 30 * 86_400.0
"""Seconds for which the shared store keeps a sign-in that nobody uses."""
_LEASE: Final = 15.0
"""Seconds until a lease ends whose replica has died: more than a renewal may take (`FETCH_TIME`)."""
_RETRIES: Final = 60
"""Seconds for which a sign-in that the shared store did not take is offered to it again, once each."""
OPERATOR: Final = ""
"""The owner of a sign-in that is used for every caller."""
REGISTRATION: Final = "registration"
"""The owner of the client that the gateway registered for the sign-ins of all users at a server."""


@dataclass(frozen=True, slots=True)
class GrantKey:
    """Whose sign-in it is, and where."""

    owner: str
    server: str
    url: str


def sign_in_folder() -> Path:
    """Where sign-ins are kept; it may not exist yet."""
    return state_folder() / "sign-ins"


class GrantStore:
    """The sign-ins of one machine, and of its replicas where they share a store."""

    def __init__(self, folder: Path | None = None, shared: Shared | None = None) -> None:
        """`folder`: None: the one in the state folder. `shared`: None: other machines have sign-ins of their own."""
        self.folder = folder or sign_in_folder()
        self.shared = shared
        """The store that replicas share."""
        self._keys: StoreKeys | None = None

    def read(self, key: GrantKey) -> Grant | None:
        """The sign-in; None: there is none that can be read. Raises `ConfigError`: others can read the key file."""
        with suppress(FileNotFoundError):
            plain = self.open_file(_PURPOSE, key.owner, self._path(key))
            return None if plain is None else read_grant(plain)
        return None

    def write(self, key: GrantKey, grant: Grant) -> None:
        """Keep a sign-in. Raises `ConfigError` if it can't be written."""
        self.seal_file(_PURPOSE, key.owner, self._path(key), grant.to_bytes())

    def delete(self, key: GrantKey) -> None:
        """Forget a sign-in on this machine."""
        self._path(key).unlink(missing_ok=True)

    def forget_client(self, key: GrantKey) -> None:
        """Have the next sign-in register the gateway anew; the tokens stay. Raises `ConfigError`."""
        self.delete(replace(key, owner=REGISTRATION))
        if (mine := self.read(key)) is not None:
            self.write(key, replace(mine, client=mine.client.forgotten()).after(mine))

    async def known(self, key: GrantKey) -> Grant | None:
        """The sign-in as this machine or a replica knows it; None: neither does."""
        mine = None if self.state(key) is None else self.read(key)
        with suppress(NoAnswer):
            mine = await self.newest(key, mine)
        return mine if mine is not None and mine.issuer else None

    async def replace(self, key: GrantKey, grant: Grant | None) -> bool:
        """Keep a new sign-in in place of the one before it, for all replicas. None: forget that one.

        The caller holds `alone`. Returns False if the other replicas could not be told yet. Raises `ConfigError`.
        """
        if self.shared is None and grant is None:
            self.delete(key)
            return True
        with anyio.move_on_after(_LEASE):
            # What a replica gets from a renewal that has begun must not count as newer than this.
            while await self._acquire(key) is False:  # noqa: ASYNC110 - the store tells nobody when it ends
                await anyio.sleep(_PAUSE)
        now, before = datetime.now(UTC).timestamp(), self.read(key)
        with suppress(NoAnswer):
            before = await self.newest(key, before)
        made = (grant or forgotten(now)).after(before, now)
        self.write(key, made)
        return await self._release(key, made)

    async def newest(self, key: GrantKey, mine: Grant | None) -> Grant | None:
        """The sign-in as this machine knows it (`mine`) or as the replicas do, whichever is newer, for all of them.

        Raises `NoAnswer`: the shared store does not answer.
        """
        if self.shared is None:
            return mine
        version, value = (-1, b"") if mine is None else (mine.version, mine.to_bytes())
        found = await self.shared.newest(key.owner, _place(key), version, value, _SHARED_LIFE)
        if found is None:
            raise NoAnswer("the store that the replicas share does not answer")
        theirs = read_grant(found) if found else None
        # Its number in the store is not sealed.
        return theirs if theirs is not None and theirs.version > version else mine

    @asynccontextmanager
    async def lease(self, key: GrantKey, latest: Callable[[], Grant | None]) -> AsyncGenerator[bool]:
        """Keep other replicas from changing this sign-in meanwhile; yields False if one of them does. It does not wait.

        Args:
            latest: returns the sign-in at the end, which they get before they may change it.

        Raises:
            NoAnswer: the shared store does not answer, so another one may be about to spend its refresh token.
        """
        taken = await self._acquire(key)
        if taken is None and ((mine := latest()) is None or not mine.reusable):
            raise NoAnswer("the store that the replicas share does not answer, and one of them may be renewing it")
        try:
            yield taken is not False
        finally:
            if taken is not False:
                with anyio.CancelScope(shield=True):
                    await self._release(key, latest())

    async def _acquire(self, key: GrantKey) -> bool | None:
        return True if self.shared is None else await self.shared.acquire(key.owner, _place(key), _LEASE)

    async def _release(self, key: GrantKey, grant: Grant | None) -> bool:
        """End the lease, once the replicas can see what was written. Returns False if the store does not take that.

        Then it is offered again in the background, and the lease ends by itself.
        """
        if self.shared is None:
            return True
        try:
            await self.newest(key, grant)
        except NoAnswer:
            self.shared.run_in_background(self._publish_later(key, grant))
            return False
        await self.shared.release(key.owner, _place(key))
        return True

    async def _publish_later(self, key: GrantKey, grant: Grant | None) -> None:
        for _ in range(_RETRIES):
            await anyio.sleep(1.0)
            with suppress(NoAnswer):
                await self.newest(key, grant)
                return

    def state(self, key: GrantKey) -> tuple[int, int] | None:
        """A value that differs once the sign-in has changed; None: there is none."""
        with suppress(OSError):
            found = self._path(key).stat() if self._keys is not None or self._has_key() else None
            return None if found is None else (found.st_ino, found.st_mtime_ns)
        return None

    @asynccontextmanager
    async def alone(self, key: GrantKey) -> AsyncGenerator[None]:
        """Keep other tasks and processes from changing this sign-in meanwhile. Waits until they have finished."""
        descriptor = os.open(self._path(key).with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    # Another process renews it: one exchange with an authorization server.
                    await anyio.sleep(_PAUSE)
            yield
        finally:
            os.close(descriptor)

    def digest(self, purpose: str, *parts: str) -> str:
        """A name, for a file in the folder, that reveals nothing of its parts."""
        (name, *_) = self._opened().names(purpose, *parts)
        return name.decode().replace(":", "-")

    def seal_file(self, purpose: str, owner: str, path: Path, plain: bytes) -> None:
        """Write a file that opens only for this purpose and owner, and by its name. Raises `ConfigError`."""
        replace_private(path, self._opened().seal(purpose, owner, path.name.encode(), plain))

    def open_file(self, purpose: str, owner: str, path: Path) -> bytes | None:
        """What `seal_file` wrote; None: it was something else. Raises `ConfigError`, `FileNotFoundError`."""
        return self._opened().opened(purpose, owner, path.name.encode(), path.read_bytes())

    def _path(self, key: GrantKey) -> Path:
        return self.folder / self.digest(_PURPOSE, key.owner, key.server, key.url)

    def _has_key(self) -> bool:
        return (self.folder / "key").exists()

    def _opened(self) -> "StoreKeys":
        if self._keys is None:
            # Importing the cryptography takes time, and a gateway without sign-ins does not need it.
            from gateway.shared.store_records import StoreKeys

            self._keys = StoreKeys([_read_key(self.folder)], "")
        return self._keys


def _place(key: GrantKey) -> str:
    """Its name in the shared store, beside its owner's."""
    return f"{key.server} {key.url}"


def _read_key(folder: Path) -> bytes:
    """The key, which is made if there is none."""
    path = folder / "key"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            draft = path.with_name(f".key.{secrets.token_hex(8)}")
            replace_private(draft, secrets.token_bytes(_KEY_BYTES))
            with suppress(FileExistsError):
                # Of two processes that make one at the same time, the first wins.
                os.link(draft, path)
            draft.unlink()
        mode = stat.S_IMODE(path.stat().st_mode)
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read or made ({error.strerror}): check its folder") from None
    if mode & _TOO_OPEN:
        raise ConfigError(f"{path}: others can read the key of the sign-ins (mode {mode:04o}): chmod 600 it")
    if len(key) != _KEY_BYTES:
        raise ConfigError(f"{path}: not a key of {_KEY_BYTES} bytes: remove it, and sign in again")
    return key
