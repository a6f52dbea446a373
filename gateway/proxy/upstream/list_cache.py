"""What servers listed in an earlier run of the gateway, kept in the user's cache for a client's first look.

Turns a server's lists and instructions into a file under a digest of its configuration, and back: a server that is
started in another way has none, even under the same name. A file that is damaged, too large or of another format counts
as none. It does not know whether the server is up.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

from platformdirs import user_cache_path

from gateway.config.model import UpstreamConfig
from gateway.config.private_file import replace_file
from gateway.observe.logs import get_logger
from gateway.proxy.upstream.items.item_forms import Kind
from gateway.proxy.upstream.items.item_reader import ItemReader
from gateway.proxy.upstream.supervision.listing import KINDS, Listed, Screen
from gateway.proxy.upstream.supervision.members import Member

_FORMAT: Final = 1
_LONGEST: Final = 4 * 1024 * 1024
"""Bytes kept of one server, at most: a thousand large tools. Of one that lists more nothing is kept."""
_MOST: Final = 256
"""Servers of which something is kept, at most; those that were not used for longest go first."""


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What a server told in an earlier run of the gateway: it may have changed, and nothing can be asked of it."""

    lists: Mapping[Kind, Listed]
    modern: bool
    """Whether it spoke the modern era."""
    info: Mapping[str, Any]
    instructions: str | None


class ListCache:
    """The folder of what is kept of all servers."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: None: `lists` in the user's cache."""
        self._folder = folder or user_cache_path("codec-gateway") / "lists"

    def file_of(self, config: UpstreamConfig) -> "ListFile":
        """The file of one server; it need not exist."""
        # Values of variables and headers are no part of it: a renewed password makes no other server.
        target = [config.command, *config.args] if config.command is not None else [config.url, config.manifest]
        given = [config.name, target, str(config.cwd), sorted(config.env), sorted(config.headers), config.protocol]
        return ListFile(self._folder / f"{sha256(json.dumps(given).encode()).hexdigest()}.json", config.name)


class ListFile:
    """What is kept of one server."""

    def __init__(self, path: Path, server: str) -> None:
        self._path = path
        self._log = get_logger("gateway.proxy").bind(server=server)
        self._kept = b""
        """What the file holds, as far as is known."""

    def read(self, reader: ItemReader, screen: Screen) -> EarlierRun | None:
        """What is kept. `reader` and `screen` as for `Listing`: what may not be shown now is left out."""
        try:
            if self._path.stat().st_size > _LONGEST:
                return None
            data = self._path.read_bytes()
            os.utime(self._path)
            found = _parse(json.loads(data), reader, screen)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._log.warning("what is kept of its lists can't be used", file=str(self._path), cause=str(error)[:200])
            return None
        self._kept = data
        return found

    def write(self, member: Member) -> None:
        """Keep what this session has listed, unless it is kept already."""
        try:
            data = json.dumps(_fields_of(member)).encode()
            if data != self._kept:
                self._replace(data)
                self._kept = data
        except (OSError, ValueError, TypeError, RecursionError) as error:
            self._log.debug("its lists can't be kept", file=str(self._path), cause=str(error)[:200])

    def _replace(self, data: bytes) -> None:
        if len(data) > _LONGEST:
            self._path.unlink(missing_ok=True)
            return
        folder = self._path.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._path.exists():
            _make_room(folder)
        replace_file(self._path, data)


def _fields_of(member: Member) -> dict[str, Any]:
    listing, session = member.listing, member.session
    known = {kind: listing.at_hand(kind) or listing.known(kind) for kind in KINDS}
    lists = {kind: [each.items, each.around] for kind, each in known.items() if each is not None}
    told = {"modern": session.modern, "info": session.info, "instructions": session.instructions}
    return {"format": _FORMAT, **told, "lists": lists}


def _parse(value: Any, reader: ItemReader, screen: Screen) -> EarlierRun:
    """Raises anything that a damaged value causes."""
    if value["format"] != _FORMAT:
        raise ValueError("it has the format of another version")
    modern, info, words = bool(value["modern"]), dict(value["info"]), value["instructions"]
    lists: dict[Kind, Listed] = {}
    for kind in KINDS:
        if kind in value["lists"]:
            items, around = value["lists"][kind]
            read = reader.read(kind, list(cast("list[object]", items)), modern=modern)
            lists[kind] = Listed(screen(read) if kind == "tools" else tuple(read), dict(around))
    return EarlierRun(lists, modern, info, words if isinstance(words, str) else None)


def _make_room(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[_MOST - 1 :]:
        with suppress(OSError):
            path.unlink()
