"""The package that carries llama.cpp, which is native code: loads it, or says what this system lacks for it.

Turns an import error into one sentence with the command that installs what is missing. As a program, it says whether
the embedded engine can start here. Imports nothing of ours, since the child process uses it.
"""

import importlib
import re
import sys
from typing import Any, Final

PACKAGE: Final = "xllamacpp"
UNUSABLE: Final = "the embedded engine can't start: "
"""What every refusal begins with."""
_MISSING: Final = re.compile(r"^(\S+\.so\S*): cannot open shared object file")
_COMMANDS: Final = {
    "libgomp.so.1": "`apt-get install libgomp1` (Debian, Ubuntu), `dnf install libgomp` (Fedora)",
}


def load() -> Any:
    """Import the package. Raises `ImportError` whose text says what to do."""
    try:
        # By name, since the package has no types, and only here, since it is slow to import.
        return importlib.import_module(PACKAGE)
    except ImportError as error:
        raise ImportError(UNUSABLE + _reason(str(error))) from error


def _reason(text: str) -> str:
    found = _MISSING.match(text)
    if found is None:
        return f"this system can't load llama.cpp (the package {PACKAGE}): {text}"
    library = found[1]
    install = _COMMANDS.get(library)
    return f"{library!r} is not installed: " + (install or "install the package of this system that has it")


def main() -> int:
    """Say whether it can be loaded; 3, the exit code for a configuration that can't work, if not."""
    try:
        load()
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    sys.stdout.write("the embedded engine can start\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
