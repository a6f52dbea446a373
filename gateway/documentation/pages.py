"""The pages that travel with the package: names that a person types to files, and files to names.

In a clone they are the repository's own files; in a wheel they are copies that the build put beside this module
(`pyproject.toml`, `force-include`). A page's name is its path in the repository without `docs/` and without `.md`.
"""

import difflib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gateway.errors import ConfigError

INDEX: Final = "index"
PATTERNS: Final = (
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/**/*.md",
    "docs/**/*.svg",
    "docs/**/*.png",
    "examples/**/*.*",
    "leaf_sdk/README.md",
    "tools/*/README.md",
)
_PACKED: Final = Path(__file__).parent / "repository"
_NEAR: Final = 0.7
"""How alike (by `difflib`) a word and a page's name are if it may be that name misspelled."""
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pages:
    """All pages, and the files that belong to them."""

    root: Path
    files: Mapping[str, str]
    """Path in the repository by name."""

    def path(self, name: str) -> Path:
        """The file of a name in `files`."""
        return self.root / self.files[name]

    def title(self, name: str) -> str:
        """The first heading of a page."""
        found = _TITLE.search(self.path(name).read_text(encoding="utf-8"))
        return found[1] if found else name

    def of_folder(self, folder: str) -> list[str]:
        """The names of pages, not of pictures or programs, directly below a folder of the repository."""
        return [name for name, path in self.files.items() if posixpath.dirname(path) == folder and path.endswith(".md")]

    def find(self, word: str) -> str:
        """The name of the page that a person means: a name, a path, the last part of a name.

        Raises:
            ConfigError: there is no such page, or there are several.
        """
        asked = posixpath.normpath(word.partition("#")[0].removesuffix("/")).removeprefix("../").removeprefix("docs/")
        asked = asked.removesuffix(".md")
        for name in (asked, f"{asked}/README"):
            if name in self.files:
                return name
        ends = [name for name in self.files if name.endswith(f"/{asked}")]
        if len(ends) == 1:
            return ends[0]
        near = ends or self._near(asked.lower())
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        raise ConfigError(f"no page is called {word!r}: {hint}codec-gateway docs lists all pages")

    def _near(self, asked: str) -> list[str]:
        """At most three names that a person may have meant: of which this is a part, or almost the whole."""
        if not asked:
            return []
        pages = [name for name, path in self.files.items() if path.endswith(".md")]
        parts = [name for name in pages if re.search(rf"(?<![a-z]){re.escape(asked)}", name.lower())]
        parts.sort(key=lambda name: name.startswith("adr/"))
        short = {posixpath.basename(name).lower(): name for name in reversed(pages)}
        close = [short[each] for each in difflib.get_close_matches(asked, short, n=3, cutoff=_NEAR)]
        return list(dict.fromkeys([*close, *parts]))[:3]


@cache
def open_pages() -> Pages:
    """Find the pages. Raises `ConfigError` if this installation has none."""
    root = _PACKED if _PACKED.is_dir() else Path(__file__).parents[2]
    paths = paths_of_pages(root)
    if not paths:
        raise ConfigError(f"this installation has no pages: there are none in {str(_PACKED)!r}; install it again")
    files = {path.removeprefix("docs/").removesuffix(".md"): path for path in paths}
    return Pages(root, MappingProxyType(files))


def paths_of_pages(root: Path) -> list[str]:
    """The files of pages below a folder. Hidden files and links are none: in a clone, those are somebody's own."""
    return [
        str(path.relative_to(root))
        for pattern in PATTERNS
        for path in sorted(root.glob(pattern))
        if path.is_file() and not path.is_symlink() and not _is_foreign(path.relative_to(root))
    ]


def _is_foreign(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)
