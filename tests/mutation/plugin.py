"""Puts one mutant in its module's place: before the module is imported, or after, which takes less.

`swap` changes the one function that differs, wherever it is held already; it can't do so with what runs only at the
import. `import_anew` forgets what is imported of this project, and compiles the module from the changed tree when it is
imported again. Nothing is written.
"""

import ast
import gc
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

_OURS = ("gateway", "leaf_sdk", "pages", "tests", "conftest")
_TESTS = Path(__file__).parents[1]


class _MutantLoader(SourceFileLoader):
    """Compiles the changed tree; no cached code is read or written."""

    def __init__(self, fullname: str, path: Path, tree: ast.Module) -> None:
        super().__init__(fullname, str(path))
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec")


class _MutantFinder(MetaPathFinder):
    """Finds the one module."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self._loader = _MutantLoader(name, path, tree)

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        loader = self._loader
        return spec_from_file_location(fullname, loader.path, loader=loader) if fullname == loader.name else None


class Unimportable(Exception):
    """The changed module can't be imported, which any test notices."""


def import_anew(path: str, tree: ast.Module) -> None:
    """Let the module be this tree, and all of this project be imported anew. Raises `Unimportable`."""
    for name, module in [*sys.modules.items()]:
        ours = name.partition(".")[0] in _OURS or _is_test(module)
        if ours and not name.startswith("tests.mutation"):
            del sys.modules[name]
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    sys.meta_path.insert(0, _MutantFinder(name, Path(path).resolve(), tree))
    try:
        import_module(name)
    except (Exception, SystemExit):
        raise Unimportable(name) from None


def _is_test(module: ModuleType) -> bool:
    """Whether it lies among the tests: of a folder with an `__init__.py`, its name begins with this folder's alone."""
    return Path(getattr(module, "__file__", None) or "/").is_relative_to(_TESTS)


def changed_function(path: Path, tree: ast.Module) -> CodeType | None:
    """The only function of the changed module that differs from the module's; None where something else does, or where
    it closes over something else, as one does that no longer calls `super()`, or where nobody can tell its functions
    apart, as two in one line."""
    before, after = (compile(each, str(path), "exec") for each in (ast.parse(path.read_text(encoding="utf-8")), tree))
    known = {(code.co_qualname, code.co_firstlineno): code for code in _functions(before)}
    changed = [code for code in _functions(after) if known.get((code.co_qualname, code.co_firstlineno)) != code]
    if len(changed) != 1:
        return None
    (code,) = changed
    there = known.get((code.co_qualname, code.co_firstlineno))
    named = [(each.co_qualname, each.co_firstlineno) for each in _with_inner(code)]
    fits = there is not None and there.co_freevars == code.co_freevars and len({*named}) == len(named)
    return code if fits else None


def swap(path: Path, code: CodeType) -> None:
    """Give the function, in all its places, this code; so with the functions inside it that exist already."""
    codes = {(each.co_qualname, each.co_firstlineno): each for each in _with_inner(code)}
    # The suite freezes what it has collected, and `get_objects` leaves out what is frozen.
    gc.unfreeze()
    for held in gc.get_objects():
        if isinstance(held, FunctionType) and held.__code__.co_filename == str(path):
            there = held.__code__
            new = codes.get((there.co_qualname, there.co_firstlineno))
            if new is not None and new.co_freevars == there.co_freevars:
                held.__code__ = new


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    if not code.co_name.endswith(("comp>", "expr>")):
        yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _with_inner(inner)


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module, and those of its classes; not those inside others."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            # 1: what has fast locals, which the body of a class has not.
            if inner.co_flags & 1:
                yield inner
            else:
                yield from _functions(inner)
