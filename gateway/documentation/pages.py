"""The pages that travel with the package: found by name, with commands as the reader types them."""

import difflib
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, metadata
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gateway.errors import ConfigError

if TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline


# The pages say `.venv/bin/codec-gateway`, messages say `codec-gateway COMMAND`. Where the command is not on the search
# path, both need its folder, as the person typed it; where it is, neither does.

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


# In a clone the pages are the repository's own files; in a wheel they are copies that the build put beside this module
# (`pyproject.toml`, `force-include`). A page's name is its path in the repository without `docs/` and `.md`.

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
        """The name of the page that a person means: a name, a path, the last part of a name. Raises `ConfigError`:
        there is no such page, or there are several."""
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


# Comments for the tests are left out. A link to what is no part of this installation leads to the repository, if the
# package says where that is, or says in words what it is. The HTML holds no markup of the page's own.

FENCE: Final = re.compile(r"(^ {0,3}```.*?^ {0,3}```$)", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_BREAK: Final = "<br>"
_CODE_OR_BREAK: Final = re.compile(rf"(`+)[^`\n]*\1(?!`)|{_BREAK}")
_NOT_A_WORD: Final = re.compile(r"[^\w\- ]")

PageAddress = Callable[[str], str]
"""The target of a link to a page, by its name."""


def print_form(pages: Pages, name: str, spelling: CommandSpelling) -> str:
    """The Markdown that the command prints; links give names that it takes."""
    text = _prepared(pages, name, spelling, lambda target: target)
    if not pages.files[name].endswith(".md"):
        return text
    return outside_fences(
        text, lambda prose: _CODE_OR_BREAK.sub(lambda found: "; " if found[0] == _BREAK else found[0], prose)
    )


def html_form(pages: Pages, name: str, spelling: CommandSpelling) -> str:
    """The body of an HTML page; links are relative to the page's own address."""
    # Only this needs the parser, which takes a while to import.
    from markdown_it import MarkdownIt

    folder = posixpath.dirname(name) or "."
    text = _prepared(pages, name, spelling, lambda target: posixpath.relpath(target, folder))
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.inline.ruler.before("html_inline", "br", _line_break)
    tokens = parser.parse(text)
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrs["id"] = anchor_of(inline.content)
    return parser.renderer.render(tokens, parser.options, {})


def _line_break(state: "StateInline", silent: bool) -> bool:
    if not state.src.startswith(_BREAK, state.pos):
        return False
    if not silent:
        state.push("hardbreak", "br", 0)
    state.pos += len(_BREAK)
    return True


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """The page with its prose changed, and its fenced blocks as they are."""
    pieces = FENCE.split(text)
    return "".join(piece if number % 2 else change(piece) for number, piece in enumerate(pieces))


def anchor_of(heading: str) -> str:
    """The anchor of a heading, as forges make it."""
    return _NOT_A_WORD.sub("", heading).strip().lower().replace(" ", "-")


def _prepared(pages: Pages, name: str, spelling: CommandSpelling, address: PageAddress) -> str:
    text = pages.path(name).read_text(encoding="utf-8")
    if not pages.files[name].endswith(".md"):
        return text
    names = {path: each for each, path in pages.files.items()}
    folder = posixpath.dirname(pages.files[name])

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path, hash_mark, anchor = target.partition("#")
        if not path or "://" in path:
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, path))
        if path in names:
            return f"{mark}[{words}]({address(names[path])}{hash_mark}{anchor})"
        url = _repository_url()
        return f"{mark}[{words}]({url}/{path}{hash_mark}{anchor})" if url else f"{words} (`{path}` in the repository)"

    return outside_fences(spelling.page(text), lambda prose: _LINK.sub(link, _COMMENT.sub("", prose)))


def _repository_url() -> str | None:
    """Where files of this version can be read, if the package says so."""
    try:
        about = metadata("codec-gateway")
    except PackageNotFoundError:
        return None
    urls = dict(each.split(", ", 1) for each in about.get_all("Project-URL") or [])
    return f"{urls['Repository']}/blob/v{about['Version']}" if "Repository" in urls else None
