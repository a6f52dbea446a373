"""Commands as the reader types them: text that names them as in a clone to text for this installation.

The pages say `.venv/bin/codec-gateway`, messages say `codec-gateway COMMAND`. Where the command is not on the search
path, both need its folder, as the person typed it; where it is, neither does.
"""

import os
import re
import shutil
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

PROGRAM: Final = "codec-gateway"
_PLACEHOLDER: Final = "/path/to/bin"
_ABSOLUTE: Final = re.compile(r"(?:/path/to/clone|\$\{workspaceFolder\})/\.venv/bin(?![\w.-])")
_ACTIVATE: Final = re.compile(r"(?<![\w/])\.venv/bin/activate\b")
_PYTHON: Final = re.compile(r"(?<![\w/])\.venv/bin/python\b")
_RELATIVE: Final = re.compile(r"(?<![\w/])\.venv/bin/(?=[\w{*])")
_COMMAND: Final = re.compile(r"(?<![\w./-])codec-gateway (?=[a-z]+)")
_NO_COMMAND: Final = re.compile(r"codec-gateway (?:is|are|was|has|does|and|or|of|in|at|that|which|with)\b")


@dataclass(frozen=True, slots=True)
class CommandSpelling:
    """How programs of this installation are typed."""

    folder: str = ""
    """What stands before a program's name, with a slash at its end; empty: it is on the search path."""
    absolute: str = _PLACEHOLDER
    """The folder of the programs, for the configuration of a client that knows no search path."""
    python: str = "python"

    @property
    def program(self) -> str:
        """The gateway's own command."""
        return f"{self.folder}{PROGRAM}"

    def page(self, text: str) -> str:
        """A page, which names programs as they are in a clone."""
        text = _ABSOLUTE.sub(lambda _: self.absolute, text)
        text = _ACTIVATE.sub(lambda _: f"{self.absolute}/activate", text)
        return _RELATIVE.sub(lambda _: self.folder, _PYTHON.sub(lambda _: self.python, text))

    def message(self, text: str) -> str:
        """A message or a help text, which names commands as if they were on the search path."""
        if not self.folder:
            return text
        return _COMMAND.sub(lambda found: found[0] if _is_prose(text, found.start()) else f"{self.program} ", text)


ANYWHERE: Final = CommandSpelling()
"""For readers on other machines, who need not know where programs are here."""


def own_spelling() -> CommandSpelling:
    """The spelling for whoever started this process."""
    return _spelling(sys.argv[0], os.environ.get("PATH", ""))


@lru_cache(maxsize=4)
def _spelling(started: str, search: str) -> CommandSpelling:
    typed = Path(started)
    if typed.name != PROGRAM:
        return ANYWHERE
    found = shutil.which(PROGRAM, path=search)
    is_on_path = found is not None and Path(found).exists() and typed.exists() and Path(found).samefile(typed)
    folder = "" if is_on_path else started.removesuffix(PROGRAM)
    return CommandSpelling(folder, str(typed.parent.absolute()), _python(search))


def _python(search: str) -> str:
    """`python`, where that is the one with this package in it; else its path."""
    found = shutil.which("python", path=search)
    is_ours = found is not None and Path(found).parent.absolute() == Path(sys.executable).parent.absolute()
    return "python" if is_ours else sys.executable


def _is_prose(text: str, at: int) -> bool:
    return _NO_COMMAND.match(text, at) is not None
