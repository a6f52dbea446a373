"""The examples as a person copies them: every command of their READMEs, typed, against a real model.

A `text` block holds parts of what the command before it printed, in that order; numbers are not compared.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import Clone, blocks_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FRAMEWORK = ROOT / ".tools" / "framework"
"""The environment that `make test-frameworks` made last: fastmcp 4."""
HERE = ("agent", "bolt_on", "leaf_mcp", "openai_client")
ELSEWHERE = {"compose", "leaf_fastmcp"}


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    made = Clone(tmp_path)
    yield made
    made.close()


def plain(text: str) -> str:
    """A text without its numbers and spacing."""
    return " ".join(re.sub(r"[0-9]+(\.[0-9]+)?", "0", text).split())


def copy(name: str, clone: Clone) -> None:
    """Copy an example's files, as they are but for the ports."""
    for file in (EXAMPLES / name).iterdir():
        if file.is_file():
            (clone.folder / file.name).write_text(clone.here(file.read_text(encoding="utf-8")), encoding="utf-8")


def follow(name: str, clone: Clone) -> int:
    """Type what the README shows; returns how many of its outputs were compared."""
    exports, printed, compared = "", "", 0
    for block in blocks_of(EXAMPLES / name / "README.md"):
        if block.language == "text":
            at, seen = 0, plain(printed)
            for line in block.text.splitlines():
                at = seen.find(plain(line), at)
                assert at >= 0, f"{line!r} is not, or not in this order, in\n{printed}"
            compared += 1
        elif block.why is None:
            printed = clone.type(exports + block.text)
            exports += "".join(re.findall(r"^export .*\n", block.text, re.MULTILINE))
    return compared


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", HERE)
def test_example_does_what_its_readme_shows(name: str, clone: Clone) -> None:
    copy(name, clone)

    assert follow(name, clone) >= 1


@pytest.mark.frameworks
@pytest.mark.engine
@pytest.mark.timeout(900)
def test_example_on_fastmcp_does_what_its_readme_shows(clone: Clone) -> None:
    copy("leaf_fastmcp", clone)
    (clone.folder / "venv").symlink_to(FRAMEWORK)

    assert follow("leaf_fastmcp", clone) >= 1


def test_every_example_is_followed_and_listed() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    listed = set(re.findall(r"^\| \[(\w+)\]\(\1/README\.md\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE))

    assert folders == {*HERE, *ELSEWHERE} == listed
