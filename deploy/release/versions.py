"""Every file that states our version, to the version on which they agree, or to those that differ.

A place is a pattern for files and an expression for what they say. A place where nothing is found is a fault as well,
or it would no longer be checked.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_OURS: Final = r"codec-(?:gateway|bench|console|demo|leaf|time-leaf|plain-time)"
_PROJECT: Final = rf'^name = "{_OURS}"\nversion = "(.+)"$'
PLACES: Final = (
    ("pyproject.toml", _PROJECT),
    ("codec_*/pyproject.toml", _PROJECT),
    ("leaf_sdk/pyproject.toml", _PROJECT),
    ("tools/*/pyproject.toml", _PROJECT),
    ("pyproject.toml", rf'"{_OURS}(?:\[\w+\])?==([^"]+)"'),
    ("codec_*/pyproject.toml", rf'"{_OURS}(?:\[\w+\])?==([^"]+)"'),
    ("tools/time_leaf/pyproject.toml", rf'"{_OURS}(?:\[\w+\])?==([^"]+)"'),
    ("gateway/__init__.py", r'^__version__ = "(.+)"$'),
    ("deploy/docker/*.Dockerfile", r"^ARG VERSION=(.+)$"),
    ("deploy/helm/codec-gateway/Chart.yaml", r'^(?:version|appVersion): "?([^"\n]+)"?$'),
    ("deploy/helm/codec-gateway/values.yaml", rf": {_OURS}:(\d[\w.]*?)(?:-embedded)?$"),
    ("deploy/kubernetes/codec-gateway.yaml", r"helm\.sh/chart: codec-gateway-(.+)$"),
)


class VersionsDiffer(Exception):
    """The files do not all state the same version."""


class Stated(NamedTuple):
    """The version that one file states."""

    file: str
    version: str


def stated(root: Path) -> Iterator[Stated]:
    """Yield every version that a file states, once per file and place."""
    for pattern, expression in PLACES:
        files = sorted(root.glob(pattern))
        if not files:
            raise VersionsDiffer(f"{pattern!r} names no file; it is listed in {__name__}")
        for file in files:
            name = str(file.relative_to(root))
            found = re.findall(expression, file.read_text(encoding="utf-8"), re.MULTILINE)
            if not found:
                raise VersionsDiffer(f"{name!r} states no version by {expression!r}")
            yield from (Stated(name, version) for version in dict.fromkeys(found))


def agreed(root: Path) -> str:
    """Return the version that all files state. Raises `VersionsDiffer` with those that state another."""
    every = list(stated(root))
    version = next(each.version for each in every if each.file == "pyproject.toml")
    if others := [f"{each.file} says {each.version!r}" for each in every if each.version != version]:
        raise VersionsDiffer(f"pyproject.toml says {version!r}, but " + ", ".join(others))
    return version
