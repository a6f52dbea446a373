"""Turns an address and a key, as a person writes them, into a server that can be asked.

`http://HOST:PORT` stands for its `/v1`, as does an address that ends so; `#protobuf` after it asks for frames, and
`#protobuf,br` for frames in that coding. A key comes from the environment or a file, never from the command line, which
everybody on a machine can read. Each server has a key of its own, since a key must never go to another server. Pure
except for reading the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from gateway.config.address import Address, Origin, is_http_url, is_loopback, read_url
from gateway.errors import ConfigError
from leaf_sdk.wire import CODINGS, MEDIA_TYPES, Coding, Format

Form = Literal["json"] | Format

_LONGEST_KEY: Final = 8192
_NO_KEY: Final = "none"


@dataclass(frozen=True, slots=True)
class Server:
    """One server of OpenAI's API."""

    origin: Origin
    path: str
    """What precedes the path of each request: `/v1` if no other was named."""
    key: str | None = field(default=None, repr=False)
    form: Form = "json"
    """The form in which its answers are asked for."""
    coding: Coding | None = None
    """What they may be compressed with, if its address says so."""

    @property
    def name(self) -> str:
        """The server as results name it."""
        asked = f"#{self.form},{self.coding}" if self.coding else "" if self.form == "json" else f"#{self.form}"
        return f"{self.origin}{self.path}{asked}"

    @property
    def is_here(self) -> bool:
        """Whether it is reached over this machine's loopback."""
        return is_loopback(self.origin.host)


def read_servers(urls: Sequence[str], keys: Sequence[str], environ: Mapping[str, str]) -> list[Server]:
    """The servers of these addresses, each with its key. Raises `ConfigError`."""
    if keys and len(keys) != len(urls):
        raise ConfigError(
            f"--key was given {len(keys)} times for {len(urls)} addresses: give one for each, in the same order "
            f"({_NO_KEY} for a server that needs none), so that no server gets another's key"
        )
    read = [None if key == _NO_KEY else _key(key, environ) for key in keys] or [None] * len(urls)
    servers = [_server(url, key) for url, key in zip(urls, read, strict=True)]
    if len({each.name for each in servers}) < len(servers):
        raise ConfigError("an address was given twice: give each server only once")
    return servers


def _server(written: str, key: str | None) -> Server:
    url, _, asked = written.partition("#")
    form, _, coding = asked.partition(",")
    if form not in ("", "json", *MEDIA_TYPES) or coding not in ("", *CODINGS):
        raise ConfigError(
            f"{written[:200]!r} names an unknown form of answers: expected #json, #{', #'.join(MEDIA_TYPES)} or "
            f"nothing, and optionally a coding after it, such as #protobuf,br: {', '.join(CODINGS)}"
        )
    if not is_http_url(url):
        raise ConfigError(
            f"{url[:200]!r} is not the address of a server: expected http://HOST:PORT, such as http://127.0.0.1:8600"
        )
    address: Address = read_url(url)
    if address.authorization is not None:
        raise ConfigError("an address contains a user or a password, which others on this machine can read: use --key")
    if "?" in address.path:
        raise ConfigError(f"{url[:200]!r} contains a query: expected an address up to /v1")
    path = address.path.rstrip("/")
    return Server(address.origin, path or "/v1", key, form or "json", coding or None)


def _key(source: str, environ: Mapping[str, str]) -> str:
    kind, _, name = source.partition(":")
    if kind == "env" and name:
        key = environ.get(name, "")
    elif kind == "file" and name:
        try:
            with Path(name).open(encoding="utf-8") as file:
                key = file.read(_LONGEST_KEY + 1)
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"--key: {name!r} can't be read: {error}") from None
    else:
        # What was given may be the key itself, so it is not repeated.
        raise ConfigError(f"--key: expected env:NAME, file:PATH or {_NO_KEY}, never a key itself")
    key = key.strip()
    if not key or len(key) > _LONGEST_KEY or not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"--key: {kind}:{name} does not hold a key: expected one line of visible ASCII characters")
    return key
