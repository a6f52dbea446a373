"""A page of `docs/agents`, followed: its settings, its environment and its command, for a gateway at some address."""

import re
import shlex
from pathlib import Path
from typing import Final

_PAGES: Final = Path(__file__).parents[2] / "docs" / "agents"
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS: Final = "http://127.0.0.1:8600"
_EXPORT: Final = "export "


class Page:
    """One of them."""

    def __init__(self, name: str, url: str) -> None:
        """`url`: of the gateway, in place of the page's."""
        text = (_PAGES / f"{name}.md").read_text(encoding="utf-8").replace(_ADDRESS, url)
        self._blocks = [(kind, block) for kind, block in _BLOCK.findall(text)]

    def blocks(self, kind: str) -> list[str]:
        """Give its blocks in one language."""
        return [text for each, text in self._blocks if each == kind]

    def programs(self) -> list[tuple[str, str]]:
        """Give its programs: how the name of such a file ends, and the text."""
        endings = {"js": "mjs", "python": "py"}
        return [(endings[kind], text) for kind, text in self._blocks if kind in endings]

    def environment(self) -> dict[str, str]:
        """Give the variables that it exports."""
        lines = (line for block in self.blocks("sh") for line in block.splitlines())
        pairs = (shlex.split(line)[1].partition("=") for line in lines if line.startswith(_EXPORT))
        return {name: value for name, _, value in pairs}

    def command(self, program: Path) -> list[str]:
        """Give its command, with `program` for the name that it has there."""
        (line,) = (block for block in self.blocks("sh") if not block.startswith(_EXPORT))
        return [str(program), *shlex.split(line)[1:]]
