"""What a package index would refuse or show badly: a built wheel or sdist to the faults of its metadata.

The description must be Markdown that renders, and its links must lead somewhere outside the repository; names, version,
licence, classifiers and addresses must be there. Nothing is sent and nothing is asked.
"""

import posixpath
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from packaging.metadata import ExceptionGroup as Faults
from packaging.metadata import Metadata
from trove_classifiers import classifiers

from deploy.check.outcome import Failed
from gateway.documentation.pages import FENCE, outside_fences

_RELATIVE: Final = re.compile(r"\]\((?!https?://|#|mailto:)([^()\s]+)\)")
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?://|#|mailto:)([^()\s]+)\)")
_NO_ADDRESS: Final = re.compile(r": has no project urls$|links of its description lead nowhere")
_NEEDED: Final = ("summary", "license_expression", "requires_python", "project_urls", "classifiers")


def check_metadata(folder: Path, *, has_address: bool) -> str:
    """Check every wheel and sdist in a folder, and say what was found.

    Args:
        has_address: whether the packages were given the repository's address; without it, some faults are expected.

    Raises:
        Failed: an index would refuse a file, or show it badly.
    """
    files = sorted(path for path in folder.iterdir() if path.name.endswith((".whl", ".tar.gz")))
    faults = [fault for path in files for fault in faults_of(path)]
    expected = [fault for fault in faults if not has_address and _NO_ADDRESS.search(fault)]
    if others := [fault for fault in faults if fault not in expected]:
        raise Failed("; ".join(others))
    return f"{len(files)} files can be uploaded" if not expected else "complete, but for the repository's address"


def faults_of(path: Path) -> Iterator[str]:
    """What is wrong with the metadata of one file, a sentence each."""
    try:
        about = Metadata.from_email(_text(path), validate=True)
    except Faults as group:
        yield from (f"{path.name}: {error}" for error in group.exceptions)
        return
    if not path.name.startswith(f"{about.name.replace('-', '_')}-{about.version}"):
        yield f"{path.name}: holds {about.name} {about.version}"
    if about.description_content_type is None or "markdown" not in about.description_content_type:
        yield f"{path.name}: its description is {about.description_content_type}, expected text/markdown"
    description = about.description or ""
    if len(MarkdownIt().render(description)) < 100:
        yield f"{path.name}: its description is empty"
    if links := sorted(set(_RELATIVE.findall(FENCE.sub("", description)))):
        yield f"{path.name}: {len(links)} links of its description lead nowhere, the first: {links[0]!r}"
    if unknown := set(about.classifiers or ()) - classifiers:
        yield f"{path.name}: no such classifiers: {sorted(unknown)}"
    for field in _NEEDED:
        if not getattr(about, field):
            yield f"{path.name}: has no {field.replace('_', ' ')}"


def address_for_index(source: Path, repository: str, version: str) -> None:
    """Give the sources in a folder what an index shows: the repository's address, and descriptions whose links work."""
    for project in (
        source / "pyproject.toml",
        source / "leaf_sdk/pyproject.toml",
        *source.glob("tools/*/pyproject.toml"),
    ):
        urls = {"Repository": repository, "Documentation": f"{repository}/blob/v{version}/docs/index.md"}
        urls["Changelog"] = f"{repository}/blob/v{version}/CHANGELOG.md"
        with project.open("a", encoding="utf-8") as file:
            file.write("\n[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items()))
        readme = project.with_name("README.md")
        at = f"{repository}/blob/v{version}"
        folder = project.parent.relative_to(source).as_posix()
        text = absolute_links(readme.read_text(encoding="utf-8"), at, folder)
        readme.write_text(text, encoding="utf-8")


def absolute_links(text: str, at: str, folder: str) -> str:
    """A page of `folder`, with its links to files of the repository as addresses below `at`; pictures are raw files."""

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[3]))
        where = at.replace("/blob/", "/raw/", 1) if found[1] else at
        return f"{found[1]}[{found[2]}]({where}/{path})"

    return outside_fences(text, lambda prose: _LINK.sub(link, prose))


def _text(path: Path) -> bytes:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
            return wheel.read(name)
    with tarfile.open(path) as files:
        file = files.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
        return b"" if file is None else file.read()
