"""A mutant takes its function's place where that can be done, and is imported anew where not."""

import ast
import sys
from pathlib import Path

import pytest

from tests.mutation.operators import mutants
from tests.mutation.plugin import Unimportable, changed_function, import_anew

SOURCE = """
LIMIT = 3


class Inner(dict):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size + 1
"""


@pytest.mark.parametrize(
    ("said", "swapped"),
    [("size + 1  ->  size - 1", True), ("super().__init__()  ->  pass", False), ("3  ->  4", False)],
)
def test_function_is_swapped_unless_it_closes_over_something_else(tmp_path: Path, said: str, swapped: bool) -> None:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    (mutant,) = (each for each in mutants(SOURCE) if each.said == said)

    assert (changed_function(path, mutant.tree) is not None) is swapped


def test_module_that_can_not_be_imported_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = {**sys.modules}
    try:
        with pytest.raises(Unimportable):
            import_anew("gateway/escape.py", ast.parse("no_such_name"))
    finally:
        sys.modules.clear()
        sys.modules.update(before)
