"""The glossary's words are those of the code, and words that were given up for them do not come back."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
NAMED = re.findall(r"\| `((?:gateway|leaf_sdk)[\w.]+)` \|$", GLOSSARY, re.MULTILINE)
GIVEN_UP = {
    *("door", "witness", "fate", "tender", "doze", "patience", "helped", "complaints", "news", "fleet"),
    *("desk", "rooms", "hush", "let_go", "dialler", "face"),
}
WIRE_BELONGS_TO = ("serve/codec/", "config/", "observe/", "app/process.py")
MODULES = sorted((ROOT / "gateway").rglob("*.py"))
OTHERS = sorted(path for folder in ("leaf_sdk", "tools", "bench", "tests") for path in (ROOT / folder).rglob("*.py"))


def words_of(path: Path) -> set[str]:
    """Words of the names that a module gives: to classes, functions, arguments and variables."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    names = {re.sub(r"(?i)hugging_?face", "", name) for name in names}
    parts = {part.lower() for name in names for part in re.findall(r"[A-Z]?[a-z]+", name)}
    return parts | {name.strip("_").lower() for name in names}


@pytest.mark.parametrize("name", NAMED)
def test_what_the_glossary_names_is_there(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, member = name.rpartition(".")
        assert hasattr(importlib.import_module(module), member)


def test_the_glossary_names_parts_of_all_sections() -> None:
    assert len(NAMED) > 30


@pytest.mark.parametrize("path", [*MODULES, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_names_use_no_word_that_was_given_up(path: Path) -> None:
    assert not words_of(path) & GIVEN_UP


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_wire_is_said_of_frames_alone(path: Path) -> None:
    place = str(path.relative_to(ROOT / "gateway"))

    assert place.startswith(WIRE_BELONGS_TO) or "wire" not in words_of(path)
