"""`codec-leaf new`: a name to a working package: a leaf server, or a bolt-on tool, with its tests.

The files come from `templates`, with three words filled in; from then on they are the author's, and nothing here refers
to them again. Never writes into a folder that is not empty.
"""

import keyword
import re
import sys
from enum import Enum
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from leaf_sdk.errors import CodecError


class Kind(Enum):
    """The kind of package."""

    LEAF = "leaf"
    BOLT_ON = "bolt-on"


_BOTH = {".gitignore": "gitignore", "src/@package@/__init__.py": "init.py"}
_FILES = {
    Kind.LEAF: {
        "pyproject.toml": "leaf/pyproject.toml",
        "README.md": "leaf/README.md",
        "Dockerfile": "leaf/Dockerfile",
        "src/@package@/server.py": "leaf/server.py",
        "src/@package@/__main__.py": "leaf/main.py",
        "tests/test_server.py": "leaf/tests.py",
    },
    Kind.BOLT_ON: {
        "pyproject.toml": "bolt_on/pyproject.toml",
        "README.md": "bolt_on/README.md",
        "Dockerfile": "bolt_on/Dockerfile",
        "src/@package@/bolt_on.py": "bolt_on/bolt_on.py",
        "src/@package@/__main__.py": "bolt_on/main.py",
        "tests/test_bolt_on.py": "bolt_on/tests.py",
    },
}
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_WORD = re.compile(r"@(name|package|version)@")
_TAKEN = {"leaf_sdk", "mcp", "tests", "tokenizers", "msgpack", "anyio", "pytest"}


def new(
    name: Annotated[str, typer.Argument(help="The package's name: lower-case letters, digits and hyphens.")],
    kind: Annotated[Kind, typer.Option(help="An MCP server that ships ids, or a tool called with ids.")] = Kind.LEAF,
    into: Annotated[Path, typer.Option(help="The folder in which to create the package's folder.")] = Path(),
) -> None:
    """Make a working package: a server, its tests, a Dockerfile.

    Example: codec-leaf new my-tool --kind bolt-on
    """
    package = _package(name)
    folder = into / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CodecError(f"{str(folder)!r} exists already and is not empty; choose another name, or remove it")
    words = {"name": name, "package": package, "version": version("codec-leaf")}
    for path, template in {**_BOTH, **_FILES[kind]}.items():
        _write(folder / _filled(path, words), _filled(_template(template), words))
    typer.echo(
        f"created {folder}, a {kind.value} package. Next, in that folder and in an environment that has codec-leaf:\n"
        "  pip install -e . --group dev\n  pytest"
    )


def _package(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} is not a valid name, expected lower-case letters, digits and single hyphens, such as my-tool"
        )
    package = name.replace("-", "_")
    if package in _TAKEN or package in sys.stdlib_module_names or keyword.iskeyword(package):
        raise typer.BadParameter(f"a package named {name!r} would hide the module of that name; choose another name")
    return package


def _template(name: str) -> str:
    return files("leaf_sdk.cli").joinpath("templates", f"{name}.tmpl").read_text(encoding="utf-8")


def _filled(text: str, words: dict[str, str]) -> str:
    return _WORD.sub(lambda found: words[found[1]], text)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CodecError(f"{str(path)!r} can't be written: {error.strerror}") from error
