"""Maps on disk by the hash of their bytes, and their compiled forms: fetched or built once, then offline.

A map is checked against the hash in its file's name whenever it is read, so a damaged or changed file counts as
missing. Files appear whole or not at all. One thread fetches a map while others wait for it. Disk errors never reach
the caller: a cache that can't be written is just empty.
"""

import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leaf_sdk.errors import MapError
from leaf_sdk.vocab import TokenMap, compile_map, load_compiled, load_map, map_digest

_HASH = re.compile(rb"sha256:[0-9a-f]{64}")
_guard = threading.Lock()
_locks: dict[str, threading.Lock] = {}


def cache_folder() -> Path:
    """Return the folder for this user's caches: `$XDG_CACHE_HOME/codec-leaf`, or the system's usual place."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "codec-leaf"
    places = {"darwin": "Library/Caches", "win32": "AppData/Local/Cache"}
    return Path.home() / places.get(sys.platform, ".cache") / "codec-leaf"


@dataclass(frozen=True, slots=True)
class MapCache:
    """A folder of maps. It need not exist."""

    folder: Path

    def read(self, map_hash: str) -> bytes | None:
        """Return a map's bytes, or None if they are missing or no longer match their name."""
        data = _read(self._path(map_hash, "json"))
        return data if data is not None and map_digest(data) == map_hash else None

    def write(self, data: bytes) -> None:
        """Keep a map's bytes under their hash."""
        _write(self._path(map_digest(data), "json"), data)

    def fetched(self, map_hash: str, fetch: Callable[[], bytes]) -> bytes:
        """Return a map's bytes from here, or from `fetch`, which is called once even if many ask at the same time."""
        with _guard:
            lock = _locks.setdefault(f"{self.folder}#{map_hash}", threading.Lock())
        with lock:
            data = self.read(map_hash)
            if data is None:
                data = fetch()
                self.write(data)
            return data

    def open(self, map_hash: str, read_bytes: Callable[[], bytes]) -> TokenMap:
        """Open a map from its compiled form, or read it and keep that form for the next time.

        Args:
            map_hash: the map's name, `sha256:<hex>`.
            read_bytes: returns the map's own bytes; called when something is encoded or there is no compiled form.

        Raises:
            MapError: the map can't be obtained or used.
        """
        path = self._path(map_hash, "compiled")
        compiled = _read(path)
        if compiled is not None:
            try:
                return load_compiled(compiled, map_hash, lambda: load_map(read_bytes(), map_hash))
            except MapError:
                _remove(path)
        token_map = load_map(read_bytes(), map_hash)
        compiled = compile_map(token_map)
        if compiled is not None:
            _write(path, compiled)
        return token_map

    def built(self, hash_source: Callable[[], str], build: Callable[[], bytes]) -> bytes:
        """Return the bytes of the map that is built from a source, or build it and keep it for the next time.

        Args:
            hash_source: gives the hash of all that the map depends on, `sha256:<hex>`. It is asked again afterwards: a
                file may be replaced while its map is built.
            build: builds the map.
        """
        source_hash = hash_source()
        path = self.folder / "built" / source_hash.removeprefix("sha256:")
        named = _read(path)
        if named is not None and _HASH.fullmatch(named):
            data = self.read(named.decode())
            if data is not None:
                return data
        data = build()
        if hash_source() != source_hash:
            return data
        self.write(data)
        _write(path, map_digest(data).encode())
        return data

    def note(self, name: str, data: bytes) -> None:
        """Keep a small finding under a name, such as what an origin published, for when it can't be reached."""
        _write(self._note(name), data)

    def noted(self, name: str) -> bytes | None:
        """Return what was last kept under a name."""
        return _read(self._note(name))

    def _path(self, map_hash: str, ending: str) -> Path:
        return self.folder / "maps" / f"{map_hash.removeprefix('sha256:')}.{ending}"

    def _note(self, name: str) -> Path:
        return self.folder / "published" / f"{map_digest(name.encode()).removeprefix('sha256:')}.json"


def default_cache() -> MapCache:
    """Return this user's cache."""
    return MapCache(cache_folder())


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        whole.write_bytes(data)
        whole.replace(path)
    except OSError:
        return
