"""API keys: what a key is, and the text of the file that stores them.

Turns `keys.toml` into records and records into `keys.toml`. The file never holds a key itself, only its SHA-256. A
plain hash is enough: a key is 32 random bytes, so there is no list of likely ones to try (a slow hash protects
passwords that people make up). It opens no file.
"""

import json
import re
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Final, cast

from pydantic import AwareDatetime, Field, ValidationError

from gateway.config.section import CountOrZero, Section
from gateway.errors import ConfigError
from gateway.proxy.caller import Principal
from gateway.serve.auth.identity import RESERVED_NAMES, Allowance, Identity

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
    """The records of a key file by name.

    Raises:
        ConfigError: it is not TOML, has an unknown field, a bad name or value, or the same hash under two names.
    """
    try:
        section = _KeysSection.model_validate(tomllib.loads(text), strict=True)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{origin}: not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
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
