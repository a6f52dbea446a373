"""The pages of docs/ that are made from the code say what it says now."""

import pytest

from pages import __main__ as command
from pages.__main__ import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_code_writes(name: str) -> None:
    written = (DOCS / f"{name}.md").read_text(encoding="utf-8")

    assert written == PAGES[name](), f"docs/{name}.md is stale: run python -m pages"


def test_the_command_writes_every_page(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(command, "DOCS", tmp_path)

    command.main()

    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.md" for name in PAGES}
