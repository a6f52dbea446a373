"""A page of Markdown to the Markdown that the command prints, and to HTML.

Commands are spelled for the reader, comments for the tests are left out, and links to other pages lead to them by name.
What a link leads to may be no part of this installation: then it leads to the repository, if the package says where
that is, or says in words what it is. The HTML holds no markup of the page's own.
"""

import posixpath
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, metadata
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from gateway.documentation.pages import Pages
from gateway.documentation.spelling import Spelling

if TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline

FENCE: Final = re.compile(r"(^ {0,3}```.*?^ {0,3}```$)", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"^[ \t]*<!--.*?-->[ \t]*\n", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_BREAK: Final = "<br>"
_CODE_OR_BREAK: Final = re.compile(rf"(`+)[^`\n]*\1(?!`)|{_BREAK}")
_NOT_A_WORD: Final = re.compile(r"[^\w\- ]")

Address = Callable[[str], str]
"""The target of a link to a page, by its name."""


def print_form(pages: Pages, name: str, spelling: Spelling) -> str:
    """The Markdown that the command prints; links give names that it takes."""
    text = _prepared(pages, name, spelling, lambda target: target)
    if not pages.files[name].endswith(".md"):
        return text
    return outside_fences(
        text, lambda prose: _CODE_OR_BREAK.sub(lambda found: "; " if found[0] == _BREAK else found[0], prose)
    )


def html_form(pages: Pages, name: str, spelling: Spelling) -> str:
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


def _prepared(pages: Pages, name: str, spelling: Spelling, address: Address) -> str:
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
