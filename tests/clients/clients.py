"""The clients that hold conversations: their programs, what runs these, and which version was locked.

`make clients-install` puts packages of theirs into `.tools/clients`. It starts nothing; `conversation.py` does.
"""

import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.toolchain import CACHE, node

HERE: Final = Path(__file__).parent
PROGRAMS: Final = HERE / "programs"
_FOLDER: Final = CACHE / "clients"


@dataclass(frozen=True, slots=True)
class Client:
    """One of them."""

    words: str
    """Its name for people."""
    package: str
    program: str

    @property
    def version(self) -> str:
        """Which one is locked."""
        if self.program.endswith(".mjs"):
            packages = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))["packages"]
            return packages[f"node_modules/{self.package}"]["version"]
        lock = (HERE / "requirements.lock").read_text(encoding="utf-8")
        found = re.search(rf"^{re.escape(self.package)}==(\S+)", lock, re.MULTILINE)
        assert found is not None, f"{self.package} is not in requirements.lock"
        return found[1]

    def command(self) -> list[str]:
        """Give what runs its program with the packages that were installed for it."""
        source = PROGRAMS / self.program
        if source.suffix == ".mjs":
            # Node looks for packages from where a program lies.
            return [str(node()), str(shutil.copy(source, _FOLDER / "node"))]
        return [str(_FOLDER / "venv" / "bin" / "python"), str(source)]

    def command_here(self) -> list[str]:
        """Give what runs its program in our own environment."""
        return [sys.executable, str(PROGRAMS / self.program)]


OPENAI: Final = Client("openai (Python)", "openai", "openai_python.py")
OPENAI_AGENTS: Final = Client("openai-agents", "openai-agents", "openai_agents.py")
CLIENTS: Final = {
    Path(client.program).stem: client
    for client in (
        OPENAI,
        Client("LangChain `create_agent`", "langchain", "langchain_agent.py"),
        Client("pydantic-ai", "pydantic-ai-slim", "pydantic_agent.py"),
        OPENAI_AGENTS,
        Client("openai (Node)", "openai", "openai_node.mjs"),
        Client("Vercel AI SDK, `openai-compatible`", "ai", "ai_sdk.mjs"),
    )
}
