"""No code asks which engine it is: engines state how they differ (`Capabilities`, docs/adr/0026)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from gateway.engine.interface import EngineFacts

ROOT = Path(__file__).parents[3]
NAMES = frozenset(get_args(get_type_hints(EngineFacts)["api"]))
CLASSES = frozenset({"LlamaCpp", "Vllm"})
CHOOSES = "gateway/engine/wire/adapter.py"
"""The one module that makes the client of an engine, and so has to know which one it is."""


def questions(source: str) -> Iterator[int]:
    """The lines of a module that ask which engine it is."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            asked = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)} & NAMES
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} & CLASSES
        else:
            continue
        if asked:
            yield node.lineno


def test_only_the_module_that_makes_the_clients_asks_which_engine_it_is() -> None:
    # The settings are the operator's words: which of them fit together depends on the engine that they name.
    modules = [path for path in ROOT.glob("gateway/**/*.py") if "config" not in path.parts]

    asked = {path.relative_to(ROOT).as_posix(): [*questions(path.read_text(encoding="utf-8"))] for path in modules}
    assert [path for path, lines in asked.items() if lines] == [CHOOSES]


@pytest.mark.parametrize(
    "source",
    [
        'if facts.api == "vllm":\n    pass',
        'fast = "llama_cpp" != ready.facts.api',
        'x = facts.api in ("vllm", "other")',
        'match facts.api:\n    case "vllm":\n        pass',
        "if isinstance(ready.engine, Vllm):\n    pass",
    ],
)
def test_each_way_to_ask_is_seen(source: str) -> None:
    assert [*questions(source)] != []
