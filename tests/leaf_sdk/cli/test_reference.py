"""The page of the Python API is what the code says, and every exported name stands on it."""

from pathlib import Path

import leaf_sdk
from leaf_sdk.cli.reference import render_page

PAGE = Path(__file__).parents[3] / "docs" / "api.md"


def test_the_page_is_what_the_code_says() -> None:
    command = "python -m leaf_sdk.cli.reference > docs/api.md"
    assert PAGE.read_text(encoding="utf-8") == render_page(), f"docs/api.md is stale: run {command}"


def test_every_exported_name_stands_on_the_page_once() -> None:
    headings = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("### ")]
    assert sorted(heading.split("`")[1] for heading in headings) == sorted(leaf_sdk.__all__)
