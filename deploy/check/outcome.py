"""The outcome of a step: how it is reported, what was measured on the way, and how a command is run.

A step is a function that returns the text of its row, raises `Failed`, or raises `Skipped` if this machine lacks
something. Numbers that the documentation states are noted here as well. Knows no steps.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
TOOLS: Final = ROOT / ".tools" / "deploy"
PREFIX: Final = "localhost/codec-deploy-check"


measured: Final[dict[str, dict[str, Any]]] = {}
"""What steps noted, by group and name; `page.py` writes it down."""


def note(group: str, name: str, value: Any) -> None:
    """Keep a measurement of this run."""
    measured.setdefault(group, {})[name] = value


class Failed(Exception):
    """A step found a fault."""


class Skipped(Exception):
    """A step can't run here; the message says what is missing."""


PACKAGES = {
    "buildah": "buildah",
    "podman": "podman",
    "runc": "runc",
    "iptables": "iptables",
    "netavark": "netavark",
    "aardvark-dns": "aardvark-dns",
    "debootstrap": "debootstrap",
    "nginx": "nginx-light",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
}
"""Programs that steps use, and the Debian packages that have them, which `make deploy-install` installs."""
_SYSTEM = ("/usr/sbin", "/usr/lib/podman")
"""Folders that may be missing from PATH."""
_BESIDE = {"podman": ("runc", "iptables", "netavark", "aardvark-dns")}
"""What else a program needs here: without iptables, for example, netavark fails when a container starts."""


def missing() -> list[str]:
    """Return the programs that are not installed here, in the order of `PACKAGES`."""
    return [program for program in PACKAGES if _find(program) is None]


def need(program: str, package: str) -> str:
    """Return the path of a program, from our own tools or the system. Raises `Skipped` with the Debian package."""
    for each in _BESIDE.get(program, ()):
        need(each, PACKAGES[each])
    found = _find(program)
    if found is None:
        raise Skipped(f"{program} is not installed here ({package})")
    return found


def _find(program: str) -> str | None:
    own = [str(TOOLS / "bin"), str(ROOT / ".tools" / "bin"), os.environ.get("PATH", "")]
    return shutil.which(program, path=os.pathsep.join([*own, *_SYSTEM]))


def run(
    command: Sequence[str],
    *,
    seconds: float = 120,
    where: Path = ROOT,
    env: dict[str, str] | None = None,
    reads: str = "",
) -> str:
    """Run a command with `reads` as its input, and return its standard output. Raises `Failed` with its last lines.

    `seconds`: then it is ended, and the programs that it started with it.
    """
    with subprocess.Popen(
        command,
        cwd=where,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            printed, complaints = running.communicate(reads, timeout=seconds)
        except BaseException as error:
            os.killpg(running.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"{' '.join(command[:3])} did not end within {seconds:g} s") from None
            raise
    if running.returncode != 0:
        said = "\n".join((complaints + printed).strip().splitlines()[-12:])
        raise Failed(f"{' '.join(command[:4])} ended with {running.returncode}:\n{said}")
    return printed
