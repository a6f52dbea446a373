"""A mutant takes its function's place where that can be done, and is imported anew where not."""

import ast
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.operators import mutants
from tests.mutation.plugin import Unimportable, changed_function, import_anew, swap

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


def test_function_is_swapped_though_the_garbage_collector_was_told_to_leave_it_out(tmp_path: Path) -> None:
    path, module = tmp_path / "module.py", ModuleType("module")
    path.write_text("def size():\n    return 3\n")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    (mutant,) = (each for each in mutants(path.read_text()) if each.said == "3  ->  4")
    code = changed_function(path, mutant.tree)
    assert code is not None
    gc.freeze()
    swap(path, code)
    gc.freeze()

    assert module.size() == 4


def test_function_that_another_has_made_before_is_swapped_too(tmp_path: Path) -> None:
    path, module = tmp_path / "module.py", ModuleType("module")
    path.write_text(
        "def make(more):\n"
        "    def size():\n        return 3 + more\n"
        "    return size\n\n\n"
        "size = make(1)\n\n\n"
        "def lambdas():\n    return lambda: 1, lambda: 2\n"
    )
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    (mutant,) = (each for each in mutants(path.read_text()) if each.said == "3  ->  4")
    code = changed_function(path, mutant.tree)
    assert code is not None
    swap(path, code)
    alike = [each for each in mutants(path.read_text()) if each.said == "2  ->  3"]

    assert module.size() == 5
    assert [changed_function(path, each.tree) for each in alike] == [None]


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is imported, and how, is afterwards as it was."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = {**sys.modules}
    yield
    sys.modules.clear()
    sys.modules.update(before)


@pytest.mark.usefixtures("imports")
def test_module_that_can_not_be_imported_is_noticed() -> None:
    with pytest.raises(Unimportable):
        import_anew("gateway/escape.py", ast.parse("no_such_name"))
    with pytest.raises(Unimportable):
        import_anew("gateway/escape.py", ast.parse("raise SystemExit"))


@pytest.mark.usefixtures("imports")
@pytest.mark.parametrize("name", ["tests.gateway.test_escape", "recall.talk"])
def test_test_that_was_imported_before_is_imported_anew_whatever_its_name(name: str) -> None:
    test = ModuleType(name)
    test.__file__ = str(Path("tests/gateway/agent/recall/talk.py").resolve())
    sys.modules[name] = test
    import_anew("gateway/escape.py", ast.parse(""))

    assert name not in sys.modules


@pytest.mark.usefixtures("imports")
@pytest.mark.parametrize("path", ["gateway/escape.py", "gateway/config/__init__.py"])
def test_module_that_is_imported_anew_knows_its_file(path: str) -> None:
    source = Path(path).read_text(encoding="utf-8")
    import_anew(path, ast.parse(source))
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    assert sys.modules[name].__file__ == str(Path(path).resolve())
    assert hasattr(sys.modules[name], "__path__") == path.endswith("__init__.py")
