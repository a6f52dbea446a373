"""Puts one mutant in its module's place: before the module is imported, or after, which takes less.

`pytest -p tests.mutation.plugin`, with `MUTANT` set to `PATH:NUMBER`, compiles the module from the changed tree when it
is imported. `swap` changes the one function that differs, wherever it is held already; it can't do so with what runs
only at the import. Nothing is written.
"""

import ast
import gc
import os
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.mutation.operators import mutants


class _MutantLoader(SourceFileLoader):
    """Compiles the mutant of that number; no cached code is read or written."""

    def __init__(self, fullname: str, path: str, number: int) -> None:
        super().__init__(fullname, path)
        self._number = number

    def get_code(self, fullname: str) -> CodeType:
        path = Path(self.get_filename(fullname))
        mutant = next(islice(mutants(path.read_text(encoding="utf-8")), self._number, None))
        return compile(mutant.tree, str(path), "exec")


class _MutantFinder(MetaPathFinder):
    """Finds the one module."""

    def __init__(self, path: str, number: int) -> None:
        self._name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._loader = _MutantLoader(self._name, str(Path(path).resolve()), number)

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self._loader, origin=self._loader.path) if fullname == self._name else None


def changed_function(path: Path, tree: ast.Module) -> CodeType | None:
    """The only function of the changed module that differs from the module's; None where something else does, or where
    it closes over something else, as one does that no longer calls `super()`."""
    before, after = (compile(each, str(path), "exec") for each in (ast.parse(path.read_text(encoding="utf-8")), tree))
    known = {(code.co_qualname, code.co_firstlineno): code for code in _functions(before)}
    changed = [code for code in _functions(after) if known.get((code.co_qualname, code.co_firstlineno)) != code]
    if len(changed) != 1:
        return None
    (code,) = changed
    there = known.get((code.co_qualname, code.co_firstlineno))
    return code if there is not None and there.co_freevars == code.co_freevars else None


def swap(path: Path, code: CodeType) -> None:
    """Give the function, in all its places, this code."""
    for held in gc.get_objects():
        if isinstance(held, FunctionType) and held.__code__.co_filename == str(path):
            there = held.__code__
            if (there.co_qualname, there.co_firstlineno) == (code.co_qualname, code.co_firstlineno):
                held.__code__ = code


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module, and those of its classes; not those inside others."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            # 1: what has fast locals, which the body of a class has not.
            if inner.co_flags & 1:
                yield inner
            else:
                yield from _functions(inner)


if chosen := os.environ.get("MUTANT"):
    where, _, index = chosen.rpartition(":")
    sys.meta_path.insert(0, _MutantFinder(where, int(index)))
