"""API keys: what a key is, and the file that stores them, followed by the running gateway."""

import fcntl
import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import AwareDatetime, Field, ValidationError

from gateway.config.section import CountOrZero, Section
from gateway.config.source import read_config_text
from gateway.config.state import replace_private
from gateway.errors import ConfigError, GatewayError
from gateway.observe.logs import get_logger
from gateway.proxy.caller import Principal
from gateway.serve.auth.identity import RESERVED_NAMES, Allowance, CredentialRefused, Identity

# `keys.toml` never holds a key itself, only its SHA-256. A plain hash is enough: a key is 32 random bytes, so there is
# no list of likely ones to try (a slow hash protects passwords that people make up).

KEY_PREFIX: Final = "codec_"
"""Prefix of every key, by which a scanner for leaked secrets can recognise one."""
KEY_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST_PATTERN: Final = 128
_HEAD: Final = (
    "# Written by `codec-gateway keys add` and `codec-gateway keys revoke`, which remove comments.\n"
    "# It holds hashes, not keys: a lost key has to be replaced by a new one.\n"
)


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """One key, as stored in the file."""

    name: str
    digest: bytes
    """SHA-256 of the key's text."""
    created: datetime
    expires: datetime | None = None
    servers: tuple[str, ...] | None = None
    """Names of the servers that it may use; None: all."""
    tools: tuple[str, ...] | None = None
    """Patterns of the public tool names that it may call; None: all."""
    rate: int = 0
    concurrency: int = 0

    @property
    def owner(self) -> str:
        """Whose sign-ins at servers are used: those of this very key, not of a later one with its name."""
        return f"key:{self.digest.hex()}"

    def expired(self, now: datetime) -> bool:
        """Whether it has expired at this time."""
        return self.expires is not None and now >= self.expires

    def identity(self) -> Identity:
        """Who calls with this key."""
        servers = None if self.servers is None else frozenset(self.servers)
        principal = Principal(self.name, servers, self.tools, owner=self.owner)
        return Identity(principal, Allowance(self.rate, self.concurrency))


class _KeySection(Section):
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    created: AwareDatetime
    expires: AwareDatetime | None = None
    servers: list[str] | None = None
    tools: list[str] | None = None
    rate: CountOrZero = 0
    concurrency: CountOrZero = 0


class _KeysSection(Section):
    keys: dict[str, _KeySection] = Field(default={})


def new_key() -> str:
    """A key that nobody can guess: 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def digest_of(credential: str) -> bytes:
    """The SHA-256 under which a credential is stored and looked up."""
    return sha256(credential.encode("utf-8", "surrogateescape")).digest()


def check_name(name: str) -> str:
    """Return the name. Raises `ConfigError` if a key can't have it."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"key name {name!r}: expected 1 to 64 of letters, digits, '.', '_' and '-'")
    if name in RESERVED_NAMES:
        raise ConfigError(f"key name {name!r} is reserved for the gateway: choose another")
    return name


def check_pattern(pattern: str) -> str:
    """Return a server's name or a pattern of tools. Raises `ConfigError` if no name can be like that."""
    if not pattern or len(pattern) > _LONGEST_PATTERN or not pattern.isprintable():
        raise ConfigError(f"{pattern!r}: expected a name or a pattern of 1 to {_LONGEST_PATTERN} printable characters")
    return pattern


def parse_keys(text: str, origin: str) -> dict[str, KeyRecord]:
    """The records of a key file by name. Raises `ConfigError`: it is not TOML, has an unknown field, a bad name or
    value, or the same hash under two names."""
    try:
        section = _KeysSection.model_validate(tomllib.loads(text), strict=True)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin}: not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{origin}: key {where!r}: {first['msg']}: correct it, or create the key again") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{origin}: a number is too long or a list nested too deeply: check the file") from None
    records = {name: _record(check_name(name), entry) for name, entry in section.keys.items()}
    names: dict[bytes, str] = {}
    for record in records.values():
        if (other := names.setdefault(record.digest, record.name)) != record.name:
            raise ConfigError(f"{origin}: keys {other!r} and {record.name!r} have the same hash: remove one of them")
    return records


def render_keys(records: Iterable[KeyRecord]) -> str:
    """The text of the file, from which `parse_keys` reads the same records."""
    return _HEAD + "".join(f"\n[keys.{_quote(record.name)}]\n{_fields(record)}" for record in records)


def _record(name: str, entry: _KeySection) -> KeyRecord:
    return KeyRecord(
        name=name,
        digest=bytes.fromhex(entry.hash.removeprefix("sha256:")),
        created=entry.created,
        expires=entry.expires,
        servers=None if entry.servers is None else tuple(entry.servers),
        tools=None if entry.tools is None else tuple(entry.tools),
        rate=entry.rate,
        concurrency=entry.concurrency,
    )


def _fields(record: KeyRecord) -> str:
    values: Mapping[str, Any] = {
        "hash": f"sha256:{record.digest.hex()}",
        "created": record.created,
        "expires": record.expires,
        "servers": record.servers,
        "tools": record.tools,
        "rate": record.rate or None,
        "concurrency": record.concurrency or None,
    }
    return "".join(f"{key} = {_toml(value)}\n" for key, value in values.items() if value is not None)


def _toml(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_quote, cast('tuple[str, ...]', value)))}]"
    return _quote(value) if isinstance(value, str) else str(value)


def _quote(text: object) -> str:
    # JSON's escapes are valid in TOML, except that JSON leaves DEL as it is (TOML 1.0, "Basic strings").
    return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")


# `KeyRing` looks at the file's state at every request (one `stat`, 1.5 µs): a change takes effect at the next request,
# on every file system, and no watcher has to be kept alive. A file that can't be used changes nothing, and the log says
# why.

_TOO_OPEN: Final = 0o027
"""Mode bits that must not be set: others may not read the file, and only its owner may write it, since whoever can
write it can add a key. A group may read it: a container's secret is given that way to a process that does not own it.
"""

log = get_logger("serve")


class KeyFile:
    """`keys.toml`, as `codec-gateway keys` reads and writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, KeyRecord]:
        """The keys by name; empty if there is no file. Raises `ConfigError`."""
        return load_keys(self.path) if self.path.exists() else {}

    def add(self, record: KeyRecord) -> None:
        """Add a key. Raises `ConfigError` if its name is taken or the file can't be written."""
        check_name(record.name)
        with self._alone():
            records = self.read()
            if record.name in records:
                raise ConfigError(
                    f"{self.path}: a key {record.name!r} already exists: revoke it, or choose another name"
                )
            self._write({**records, record.name: record}.values())

    def revoke(self, name: str) -> None:
        """Remove a key. The file stays even if it holds no keys: without it, callers might not be asked for one at all.
        Raises `ConfigError`: there is no such key, or the file can't be written."""
        with self._alone():
            records = self.read()
            if name not in records:
                raise ConfigError(f"{self.path}: there is no key {name!r}; {_listed(records)}")
            self._write(record for other, record in records.items() if other != name)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Lock the folder, so that neither of two simultaneous changes is lost."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"{self.path}: its folder can't be opened ({error.strerror}): create it first") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _write(self, records: Iterable[KeyRecord]) -> None:
        replace_private(self.path, render_keys(records).encode())


class KeyRing:
    """Finds who holds a key, and follows the changes of one key file."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one. Raises `ConfigError`: a gateway with an unusable key file does not start."""
        self._path = path
        self._name = str(path)
        self._seen = _state_of(self._name)
        self._known: dict[bytes, tuple[KeyRecord, Identity]] = {}
        self.in_use = self._seen is not None
        """Whether callers need a key: there is a key file, or there was one."""
        if self.in_use:
            self._adopt(load_keys(path))

    def find(self, digest: bytes) -> Identity | None:
        """Who holds the key with this SHA-256; None if there is no such key. Raises `CredentialRefused`: the key has
        expired."""
        found = self._known.get(digest)
        if found is None:
            return None
        record, identity = found
        if record.expired(datetime.now(UTC)):
            raise CredentialRefused("expired", "the key has expired; ask for a new one")
        return identity

    def follow(self) -> None:
        """Pick up changes of the file. To be called before each `find`."""
        state = _state_of(self._name)
        if state == self._seen:
            return
        self._seen = state
        if state is None:
            self._known = {}
            log.warning("the key file is gone: no API key is accepted until it is back", path=self._name)
            return
        self.in_use = True
        try:
            self._adopt(load_keys(self._path))
        except GatewayError as error:
            log.warning("the key file was changed and can't be used; the old keys stay valid", reason=error.message)
        else:
            log.info("the key file was changed", path=self._name, keys=len(self._known))

    def _adopt(self, records: dict[str, KeyRecord]) -> None:
        self._known = {record.digest: (record, record.identity()) for record in records.values()}


def _listed(names: Iterable[str]) -> str:
    return f"the keys are {listed}" if (listed := ", ".join(names)) else "the file has no keys"


def load_keys(path: Path) -> dict[str, KeyRecord]:
    """The keys of a file that only its owner can change. Raises `ConfigError`: others can read or change it, or it is
    not a key file."""
    try:
        found = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror}): check its permissions") from None
    if stat.S_ISDIR(found):
        raise ConfigError(f"{path}: a folder: name a file for the keys, such as keys.toml")
    mode = stat.S_IMODE(found)
    if mode & _TOO_OPEN:
        raise ConfigError(f"{path}: others can read or change this key file (mode {mode:04o}): chmod 600 it")
    return parse_keys(read_config_text(path), str(path))


def _state_of(path: str) -> tuple[int, ...] | None:
    """A value that differs once the file has changed; None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a `Path` takes half as long again, at every request
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode
