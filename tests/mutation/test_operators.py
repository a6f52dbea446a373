"""Each mutant differs from the module in one place, and says where."""

import ast

from tests.mutation.operators import mutants

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
