"""Tool definitions, pinned: the first one seen of each tool is remembered, and another one is told or blocked.

A server that changes what a tool says of itself after people trusted it can make models do other things (a "rug pull").
Turns the definitions that a server lists into those that may be shown, and a change into a log line, a count and an
entry that `codec-gateway pins` shows and accepts. One JSON file in the state folder, written whole, and changed by one
process at a time. It judges only that something changed, not what; a call of a blocked tool is refused by
`gateway/proxy/permissions.py`.
"""

import fcntl
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

from gateway.config.model import UpstreamConfig
from gateway.config.state import state_folder
from gateway.errors import ConfigError
from gateway.observe.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.proxy.upstream.kept_definitions import PinnedDefinitions

_TOOLS: Final = 5000
"""Tools of one server that are pinned, in all its life."""
_NAME: Final = 128
_LINES: Final = 20
"""Tools that the log names of one listing; a server may change thousands, every second."""
Digests = dict[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A tool whose definition is not the pinned one."""

    server: str
    tool: str
    pinned: str
    """SHA-256 of the definition first seen, in hexadecimal."""
    seen: str
    """That of the one listed last."""


class PinFile:
    """The pins of all servers, in one file: server key to tool to its pinned digest, and to the one seen last."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: `pins.json` in the state folder when unset."""
        self.path = path or state_folder() / "pins.json"

    def read(self) -> dict[str, dict[str, Digests]]:
        """All pins.

        Raises:
            ConfigError: the file is there and can't be used.
        """
        try:
            value: object = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path}: the pins can't be read ({error}): mend the file, or remove it") from None
        if not _are_pins(value):
            raise ConfigError(f"{self.path}: holds no pins: remove the file")
        return cast("dict[str, dict[str, Digests]]", value)

    def write(self, pins: dict[str, dict[str, Digests]]) -> None:
        """Replace the file whole. Raises `ConfigError` where it can't be written."""
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self._make_folder()
            draft.write_text(json.dumps(pins, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            raise self._unwritten(error) from None

    def note(self, key: str, seen: Mapping[str, str]) -> dict[str, Digests]:
        """The pins of one server, once what was seen of its tools is noted. Raises `ConfigError`."""
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
        """Pin what was listed last, for one tool or all of a server; how many pins changed. Raises `ConfigError`."""
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
        """What the pinned tools said, as far as it is kept."""
        return PinnedDefinitions(self.path.with_name("pinned-definitions.json"))

    def keep(self, definitions: Mapping[str, dict[str, Any]]) -> None:
        """Keep definitions, by their digests, for as long as a pin names them. Raises `ConfigError`."""
        with self.alone():
            wanted = {each for tools in self.read().values() for pair in tools.values() for each in pair.values()}
            try:
                self.definitions.keep(definitions, wanted)
            except OSError as error:
                raise self._unwritten(error) from None

    def changes(self) -> list[Change]:
        """What differs from its pin. Raises `ConfigError`."""
        return [
            Change(key.split(" ")[0], name, digests["pinned"], digests["seen"])
            for key, tools in sorted(self.read().items())
            for name, digests in sorted(tools.items())
            if digests["seen"] != digests["pinned"]
        ]

    @contextmanager
    def alone(self) -> Generator[None]:
        """Hold the folder, so that of two changes at a time none is lost. Raises `ConfigError`."""
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


class Pins:
    """The pins of one server."""

    def __init__(self, config: UpstreamConfig, broken: Callable[[str], None], file: PinFile | None = None) -> None:
        """`file`: the common one when unset."""
        self.blocked: frozenset[str] = frozenset()
        """Its own names of the tools that nobody may call."""
        self._config = config
        self._broken = broken
        self._file = file or PinFile()
        self._key = f"{config.name} {_target(config)}"
        self._log = get_logger("gateway.proxy").bind(server=config.name)
        self._told: set[tuple[str, str]] = set()
        self._kept: frozenset[str] = frozenset()
        """Digests of the definitions that were listed last: those are kept."""

    def screen(self, definitions: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """The definitions that may be shown; new tools are pinned."""
        if self._config.pin == "off":
            return tuple(definitions)
        try:
            changed = self._compare({item["name"]: (digest_of(item), item) for item in definitions})
        except ConfigError as error:
            # What can't be compared can't be trusted, where the operator asked for that.
            self._log.error("tool definitions can't be compared with their pins", cause=error.message)
            changed = {item["name"] for item in definitions} if self._config.pin == "block" else set[str]()
        if self._config.pin == "warn":
            return tuple(definitions)
        # Each session lists for itself, and may list less: what is blocked stays so until it is seen unchanged.
        self.blocked = (self.blocked - {item["name"] for item in definitions}) | changed
        return tuple(item for item in definitions if item["name"] not in changed)

    def _compare(self, listed: dict[str, tuple[str, dict[str, Any]]]) -> set[str]:
        digests = {name: digest for name, (digest, _) in listed.items()}
        tools = self._file.note(self._key, digests)
        self._keep(dict(listed.values()))
        # One for which there was no room is no more trusted than one that changed.
        changed = {name for name, digest in digests.items() if name not in tools or tools[name]["pinned"] != digest}
        self._tell([(name, digests[name]) for name in sorted(changed) if (name, digests[name]) not in self._told])
        return changed

    def _keep(self, definitions: dict[str, dict[str, Any]]) -> None:
        """Keep what was listed, to be shown where it changes."""
        if not definitions.keys() - self._kept:
            return
        self._kept = frozenset(definitions)
        try:
            self._file.keep(definitions)
        except ConfigError as error:
            self._log.warning("definitions of pinned tools can't be kept to be shown", cause=error.message)

    def _tell(self, changes: list[tuple[str, str]]) -> None:
        """Say of each changed tool once that it is another."""
        if len(self._told) + len(changes) > 2 * _TOOLS:
            self._told.clear()
        self._told.update(changes)
        for number, (name, _) in enumerate(changes):
            self._broken(self._config.name)
            if number < _LINES:
                self._log.warning(
                    "a tool's definition is not the pinned one",
                    tool=escape_text(name, _NAME),
                    blocked=self._config.pin == "block",
                    way_out=f"codec-gateway pins show; codec-gateway pins accept {self._config.name}",
                )
        if len(changes) > _LINES:
            self._log.warning("more tools are not the pinned ones", tools=len(changes) - _LINES)


def _note(tools: dict[str, Digests], seen: Mapping[str, str]) -> bool:
    """Note the definitions that were seen, and pin those of new tools; whether that changed anything."""
    changed = False
    for name, digest in seen.items():
        pair = tools.get(name)
        if pair is None and len(tools) < _TOOLS:
            tools[name] = {"pinned": digest, "seen": digest}
            changed = True
        elif pair is not None and pair["seen"] != digest:
            pair["seen"] = digest
            changed = True
    return changed


def _are_pins(value: object) -> bool:
    servers: list[object] = list(cast("dict[str, object]", value).values()) if isinstance(value, dict) else [None]
    for tools in servers:
        digests: list[object] = list(cast("dict[str, object]", tools).values()) if isinstance(tools, dict) else [None]
        for pair in digests:
            if not isinstance(pair, dict) or {"pinned", "seen"} - cast("dict[str, object]", pair).keys():
                return False
    return True


def digest_of(definition: dict[str, Any]) -> str:
    """What stands for a definition: SHA-256 of its JSON with sorted keys, in hexadecimal."""
    return sha256(json.dumps(definition, sort_keys=True, separators=(",", ":")).encode("utf-8", "replace")).hexdigest()


def _target(config: UpstreamConfig) -> str:
    """What stands for the program or URL behind a name: another one has pins of its own."""
    target = [config.url or config.manifest] if config.command is None else [config.command, *config.args]
    return sha256(json.dumps(target).encode("utf-8", "replace")).hexdigest()[:16]
