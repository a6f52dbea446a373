"""Pinned tool definitions: the first definition of each tool is remembered, and a different one reported or blocked.

A server that changes a tool's description after people came to trust it can make models do other things (a "rug pull").
Turns the definitions that a server lists into those that may be shown, and a change into a log line, a count and an
entry that `codec-gateway pins` shows and accepts. The pins are one JSON file in the state folder, replaced as a whole
and changed by one process at a time. Any change counts, whatever it is; a call of a blocked tool is refused by
`gateway/proxy/resolver.py`.
"""

import fcntl
import json
import os
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.state import replace_file, state_folder
from gateway.errors import ConfigError
from gateway.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.proxy.upstream.items.item_reader import ListWarnings

# The pins compare only digests: a definition that is not kept here (too large, too many) can't be shown, but nothing
# else depends on it.

_MOST: Final = 4 * 1024 * 1024
"""Bytes of all definitions, at most."""
_LONGEST: Final = 64 * 1024
"""Bytes of one definition, at most."""


class PinnedDefinitions:
    """A file of definitions. A writer must hold the lock on the pins' folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the definitions by digest; none if the file does not exist or can't be used."""
        try:
            value: object = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        table = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        return {key: cast("dict[str, Any]", each) for key, each in table.items() if isinstance(each, dict)}

    def keep(self, definitions: Mapping[str, dict[str, Any]], wanted: Collection[str]) -> None:
        """Add these definitions, by digest, and drop all whose digests are not `wanted`. Raises `OSError`."""
        before = self.read()
        kept = {digest: each for digest, each in {**before, **definitions}.items() if digest in wanted}
        left = _MOST
        for digest, each in list(kept.items()):
            size = len(json.dumps(each))
            if size > min(left, _LONGEST):
                del kept[digest]
            else:
                left -= size
        if kept.keys() != before.keys():
            replace_file(self._path, json.dumps(kept).encode())


_TOOLS: Final = 5000
"""Tools of one server that are pinned, at most, including former ones."""
_NAME: Final = 128
Digests = dict[str, str]


@dataclass(frozen=True, slots=True)
class PinChange:
    """A tool whose definition differs from the pinned one."""

    server: str
    tool: str
    pinned: str
    """SHA-256 of the pinned definition, in hexadecimal."""
    seen: str
    """SHA-256 of the definition listed last."""


class PinFile:
    """The pins of all servers in one file: for each server key and tool, the pinned digest and the one last seen."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: None: `pins.json` in the state folder."""
        self.path = path or state_folder() / "pins.json"

    def read(self) -> dict[str, dict[str, Digests]]:
        """Return all pins. Raises `ConfigError`: the file exists, but can't be used."""
        try:
            value: object = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path}: the pins can't be read ({error}): correct or remove the file") from None
        if not _are_pins(value):
            raise ConfigError(f"{self.path}: the file is not in the form of pins: remove it")
        return cast("dict[str, dict[str, Digests]]", value)

    def write(self, pins: dict[str, dict[str, Digests]]) -> None:
        """Replace the whole file. Raises `ConfigError` if it can't be written."""
        try:
            self._make_folder()
            replace_file(self.path, (json.dumps(pins, indent=1, sort_keys=True) + "\n").encode())
        except OSError as error:
            raise self._unwritten(error) from None

    def note(self, key: str, seen: Mapping[str, Collection[str]]) -> dict[str, Digests]:
        """Record what was seen of a server's tools, and return the server's pins. Raises `ConfigError`.

        `seen`: the digests under which each tool is listed; more than one if a server lists it several times.
        """
        tools = self.read().get(key, {})
        if not _note(tools, seen):
            return tools
        with self.alone():
            pins = self.read()
            tools = pins.setdefault(key, {})
            _note(tools, seen)
            self.write(pins)
        return tools

    def accept(self, server: str, tool: str | None = None) -> int:
        """Pin what one tool, or every tool of a server, listed last. Return how many changed. Raises `ConfigError`."""
        with self.alone():
            pins = self.read()
            accepted = 0
            for key, tools in pins.items():
                for name, digests in tools.items():
                    if key.split(" ")[0] == server and tool in (None, name) and digests["seen"] != digests["pinned"]:
                        digests["pinned"] = digests["seen"]
                        accepted += 1
            if accepted:
                self.write(pins)
        return accepted

    @property
    def definitions(self) -> PinnedDefinitions:
        """The definitions of pinned tools that are kept."""
        return PinnedDefinitions(self.path.with_name("pinned-definitions.json"))

    def keep(self, definitions: Mapping[str, dict[str, Any]]) -> None:
        """Keep definitions, by digest, as long as a pin refers to them. Raises `ConfigError`."""
        with self.alone():
            wanted = {each for tools in self.read().values() for pair in tools.values() for each in pair.values()}
            try:
                self.definitions.keep(definitions, wanted)
            except OSError as error:
                raise self._unwritten(error) from None

    def changes(self) -> list[PinChange]:
        """Return the tools that differ from their pins. Raises `ConfigError`."""
        return [
            PinChange(key.split(" ")[0], name, digests["pinned"], digests["seen"])
            for key, tools in sorted(self.read().items())
            for name, digests in sorted(tools.items())
            if digests["seen"] != digests["pinned"]
        ]

    @contextmanager
    def alone(self) -> Generator[None]:
        """Lock the folder, so that concurrent changes are not lost. Raises `ConfigError`."""
        try:
            self._make_folder()
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise self._unwritten(error) from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _make_folder(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _unwritten(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self.path}: the pins can't be written ({error.strerror}): check its folder")


def changed_tools(config: GatewayConfig) -> list[PinChange]:
    """Return the tools that differ from their pins, of servers whose tools are pinned. Raises `ConfigError`."""
    pinned = {each.name for each in config.upstreams if each.pin != "off"}
    return [each for each in PinFile().changes() if each.server in pinned] if pinned else []


class Pins:
    """The pins of one server."""

    def __init__(self, config: UpstreamConfig, broken: Callable[[str], None], file: PinFile | None = None) -> None:
        """`broken` is called with the server's name for each changed tool. `file`: None: the usual one."""
        self.blocked: frozenset[str] = frozenset()
        """The server's own names of the tools that nobody may call."""
        self._config = config
        self._broken = broken
        self._file = file or PinFile()
        self._key = f"{config.name} {_target(config)}"
        self._log = get_logger("gateway.proxy").bind(server=config.name)
        self._warnings = ListWarnings[tuple[str, str]](
            config.name,
            "a tool's definition is not the pinned one",
            "more tools have definitions that are not the pinned ones",
        )
        self._kept: frozenset[str] = frozenset()
        """Digests of the definitions that were listed last, which are already kept."""

    def screen(self, definitions: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """Return the definitions that may be shown. New tools are pinned."""
        if self._config.pin == "off":
            return tuple(definitions)
        try:
            changed = self._compare(definitions)
        except ConfigError as error:
            # With `block` the operator trusts only compared definitions.
            blocks = self._config.pin == "block"
            log = self._log.error if blocks else self._log.warning
            log("tool definitions can't be compared with their pins", cause=error.message)
            changed = {item["name"] for item in definitions} if blocks else set[str]()
        if self._config.pin == "warn":
            return tuple(definitions)
        # Each session has its own list, which may be shorter: a tool stays blocked until it is seen unchanged.
        self.blocked = (self.blocked - {item["name"] for item in definitions}) | changed
        return tuple(item for item in definitions if item["name"] not in changed)

    def _compare(self, definitions: Sequence[dict[str, Any]]) -> set[str]:
        listed = [(digest_of(item), item) for item in definitions]
        # All of a tool that is listed several times: clients may show any of them.
        digests: dict[str, dict[str, None]] = {}
        for digest, item in listed:
            digests.setdefault(item["name"], {})[digest] = None
        tools = self._file.note(self._key, digests)
        self._keep(dict(listed))
        # A tool that could not be pinned for lack of room is trusted no more than one that changed.
        pinned = {name: tools[name]["pinned"] if name in tools else "" for name in digests}
        counted = {name: _seen(found, pinned[name]) for name, found in digests.items()}
        changed = {name: digest for name, digest in counted.items() if digest != pinned[name]}
        for _ in range(self._warnings.warn(sorted(changed.items()), self._shown)):
            self._broken(self._config.name)
        return {*changed}

    def _keep(self, definitions: dict[str, dict[str, Any]]) -> None:
        """Keep the listed definitions, so that changes can be shown."""
        if not definitions.keys() - self._kept:
            return
        self._kept = frozenset(definitions)
        try:
            self._file.keep(definitions)
        except ConfigError as error:
            self._log.warning(
                "definitions of pinned tools can't be saved; `codec-gateway pins show` won't show what changed",
                cause=error.message,
            )

    def _shown(self, change: tuple[str, str]) -> Mapping[str, object]:
        return {
            "tool": escape_text(change[0], _NAME),
            "blocked": self._config.pin == "block",
            "way_out": f"codec-gateway pins show; codec-gateway pins accept {self._config.name}",
        }


def _note(tools: dict[str, Digests], seen: Mapping[str, Collection[str]]) -> bool:
    """Record the digests that were seen, and pin those of new tools. Return whether that changed anything."""
    changed = False
    for name, digests in seen.items():
        pair = tools.get(name)
        if pair is None and len(tools) < _TOOLS:
            first = next(iter(digests))
            tools[name] = {"pinned": first, "seen": _seen(digests, first)}
            changed = True
        elif pair is not None and pair["seen"] != (digest := _seen(digests, pair["pinned"])):
            pair["seen"] = digest
            changed = True
    return changed


def _seen(digests: Collection[str], pinned: str) -> str:
    """The digest of a tool that counts: one that is not the pinned one, where there is one."""
    return next((each for each in digests if each != pinned), pinned)


def _are_pins(value: object) -> bool:
    servers: list[object] = list(cast("dict[str, object]", value).values()) if isinstance(value, dict) else [None]
    for tools in servers:
        digests: list[object] = list(cast("dict[str, object]", tools).values()) if isinstance(tools, dict) else [None]
        for pair in digests:
            if not isinstance(pair, dict) or {"pinned", "seen"} - cast("dict[str, object]", pair).keys():
                return False
    return True


def digest_of(definition: dict[str, Any]) -> str:
    """The digest of a definition: SHA-256 of its JSON with sorted keys, in hexadecimal."""
    return sha256(json.dumps(definition, sort_keys=True, separators=(",", ":")).encode("utf-8", "replace")).hexdigest()


def _target(config: UpstreamConfig) -> str:
    """A digest of the program or URL behind a server's name: a different one has pins of its own."""
    target = [config.url or config.manifest] if config.command is None else [config.command, *config.args]
    return sha256(json.dumps(target).encode("utf-8", "replace")).hexdigest()[:16]
