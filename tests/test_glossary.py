"""The glossary's words are those of the code, and words that were given up for them do not come back."""

import ast
import functools
import importlib
import re
from pathlib import Path

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


def used(words: set[str], path: Path) -> set[str]:
    """Which of the words are in the names that a module gives: to classes, functions, arguments and variables."""
    text = path.read_text(encoding="utf-8")
    # Most modules are not worth a parse: no word stands in them, or only inside another, as `face` does in `interface`.
    if not any(word in text.lower() for word in words) or not part_of_name(frozenset(words)).search(text):
        return set()
    return words & words_of(text)


@functools.cache
def part_of_name(words: frozenset[str]) -> re.Pattern[str]:
    """Finds whatever may be one of these as a part of a name: of `a_word`, `A_WORD` or `someWord`."""
    capitalized = {word.capitalize() for word in words}
    return re.compile(rf"(?:(?<![A-Za-z])(?i:{'|'.join(words)})|(?:{'|'.join(capitalized)}))(?![a-z])")


def words_of(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    names = {re.sub(r"(?i)hugging_?face", "", name) for name in names}
    parts = {part.lower() for name in names for part in re.findall(r"[A-Z]?[a-z]+", name)}
    return parts | {name.strip("_").lower() for name in names}


def is_there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, member = name.rpartition(".")
        return hasattr(importlib.import_module(module), member)
    return True


def test_what_the_glossary_names_is_there() -> None:
    assert [name for name in NAMED if not is_there(name)] == []


def test_the_glossary_names_parts_of_all_sections() -> None:
    assert len(NAMED) > 30


def test_names_use_no_word_that_was_given_up() -> None:
    found = {str(path.relative_to(ROOT)): used(GIVEN_UP, path) for path in (*MODULES, *OTHERS)}

    assert {path: words for path, words in found.items() if words} == {}


def test_wire_is_said_of_frames_alone() -> None:
    places = [str(path.relative_to(ROOT / "gateway")) for path in MODULES if used({"wire"}, path)]

    assert [place for place in places if not place.startswith(WIRE_BELONGS_TO)] == []
