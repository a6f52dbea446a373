"""Each mutant differs from the module in one place, and says where."""

import ast
from pathlib import Path

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.operators import mutants
from tests.mutation.trying import lines_of

ROOT = Path(__file__).parents[2]

SOURCE = '''
LIMIT: int = 3


def f(a: int, b: bool = True) -> int | None:
    """Words."""
    if a < 2 and not b:
        print(a)
        return min(a, a + 1)
    return None
'''


def test_every_comparison_number_word_and_operator_is_changed_once() -> None:
    assert [mutant.said for mutant in mutants(SOURCE)] == [
        "3  ->  4",
        "True  ->  False",
        "if a < 2 and (not b):  ->  if False:",
        "a < 2 and (not b)  ->  a < 2 or not b",
        "a < 2  ->  a <= 2",
        "2  ->  3",
        "not b  ->  b",
        "print(a)  ->  pass",
        "return min(a, a + 1)  ->  return None",
        "min(a, a + 1)  ->  max(a, a + 1)",
        "a + 1  ->  a - 1",
        "1  ->  2",
    ]


def test_each_mutant_is_the_whole_module_with_one_change_and_can_be_compiled() -> None:
    plain = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in mutants(SOURCE):
        compile(mutant.tree, "f.py", "exec")
        lines = ast.unparse(mutant.tree).splitlines()
        assert len(lines) == len(plain)
        assert sum(a != b for a, b in zip(lines, plain, strict=True)) == 1


def test_what_no_caller_can_tell_from_another_is_no_mutant() -> None:
    source = (
        "@dataclass(frozen=True)\nclass A:\n    def f(self):\n        return 0.0\n    def g(self):\n        return ()\n"
        "pairs = zip('ab', 'cd', strict=True)\n"
    )

    assert list(mutants(source)) == []
    assert [mutant.said for mutant in mutants("checked = check('ab', strict=True)")] == ["True  ->  False"]


def test_lines_of_a_mutant_are_those_of_its_statement_without_what_stands_inside() -> None:
    source = "def f(a):\n    if (\n        a > 1\n    ):\n        return (\n            a,\n            2,\n        )\n"

    assert {mutant.said: lines_of(mutant) for mutant in mutants(source)} == {
        "if a > 1:  ->  if False:": range(2, 5),
        "a > 1  ->  a >= 1": range(2, 5),
        "1  ->  2": range(2, 5),
        "return (a, 2)  ->  return None": range(5, 9),
        "2  ->  3": range(5, 9),
    }


def test_mutants_that_change_nothing_are_mutants_of_their_modules() -> None:
    by_module: dict[str, set[str]] = {}
    for named in EQUIVALENT:
        path, _, said = named.partition(": ")
        by_module.setdefault(path, set()).add(said)
    for path, named in by_module.items():
        assert named - {mutant.said for mutant in mutants((ROOT / path).read_text(encoding="utf-8"))} == set(), path
