"""The page of the Python API is what the code says, and every exported name stands on it."""

from pathlib import Path

import leaf_sdk

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_every_exported_name_stands_on_the_page_once() -> None:
    headings = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("### ")]
    assert sorted(heading.split("`")[1] for heading in headings) == sorted(leaf_sdk.__all__)


def test_a_property_is_a_name_with_a_type_also_where_it_is_cached() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()

    assert any(line.startswith("- `special_ids: frozenset[int]`: ") for line in lines)  # a cached property
    assert any(line.startswith("- `can_encode: bool`: ") for line in lines)
    assert not [line for line in lines if line.startswith("- `special_ids(")]


def test_a_class_that_is_no_dataclass_shows_how_it_is_called() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert "ToolRefusal(message: str, code: str='E_BAD_ARG')" in page
    assert "Detokenizer(token_map: TokenMap)" in page
