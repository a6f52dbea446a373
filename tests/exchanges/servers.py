"""The servers that are played: where their programs are, what they need to find, and which script is theirs.

`toolchain.py` of `bench` fetches them.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.toolchain import node, npm_packages
from tests.exchanges import everything, others
from tests.exchanges.masks import unmasked
from tests.exchanges.steps import Step

VERSION = "2026.8.31"
RECORDINGS = Path(__file__).parent / "recordings"
_SCOPE = "@modelcontextprotocol"
_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="


@dataclass(frozen=True, slots=True)
class Server:
    """One of the servers."""

    name: str
    steps: tuple[Step, ...]
    settings: Callable[[Path], dict[str, Any]]
    """The folder it may use, to its arguments and environment as a client's configuration has them."""

    @property
    def recording(self) -> Path:
        """What it answered when it was recorded."""
        return RECORDINGS / f"{self.name}.json"

    def configured(self, folder: Path) -> dict[str, Any]:
        """Give it as a client's configuration names it, with a folder of its own made ready."""
        folder.mkdir(parents=True)
        (folder / "dot.png").write_bytes(base64.b64decode(_DOT))
        program = npm_packages("servers", [f"{_SCOPE}/server-{name}@{VERSION}" for name in sorted(SERVERS)])
        script = program / _SCOPE / f"server-{self.name}" / "dist" / "index.js"
        settings = self.settings(folder)
        return {"command": str(node()), "args": [str(script), *settings["args"]], "env": settings["env"]}

    def script(self, folder: str) -> tuple[Step, ...]:
        """Give its steps with the folder's path put in."""
        made: list[Step] = []
        for step in self.steps:
            fields = {name: getattr(step, name) for name in step.__slots__}
            made.append(Step(**{**fields, "params": unmasked(step.params, folder)}))
        return tuple(made)


def _nothing(_: Path) -> dict[str, Any]:
    return {"args": [], "env": {}}


def _folder(folder: Path) -> dict[str, Any]:
    return {"args": [str(folder)], "env": {}}


def _memory(folder: Path) -> dict[str, Any]:
    return {"args": [], "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}}


SERVERS = {
    server.name: server
    for server in (
        Server("everything", everything.STEPS, _nothing),
        Server("filesystem", others.FILESYSTEM, _folder),
        Server("memory", others.MEMORY, _memory),
        Server("sequential-thinking", others.THINKING, _nothing),
    )
}
