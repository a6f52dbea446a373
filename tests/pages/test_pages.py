"""The pages of docs/ that are made from the code say what it says now."""

from pathlib import Path

import pytest

from pages import __main__ as command
from pages.__main__ import DOCS, PAGES


def test_the_command_writes_every_page_as_it_stands_in_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "DOCS", tmp_path)

    command.main()

    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert written.keys() == {f"{name}.md" for name in PAGES}
    stale = [name for name, text in written.items() if text != (DOCS / name).read_text(encoding="utf-8")]
    assert stale == [], "run python -m pages"
