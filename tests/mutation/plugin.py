"""Puts one mutant in its module's place while tests run: `pytest -p tests.mutation.plugin`, with `MUTANT` set.

`MUTANT` is `PATH:NUMBER`. Nothing is written: the module is compiled from the changed tree when it is imported.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import islice
from pathlib import Path
from types import CodeType, ModuleType

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


if chosen := os.environ.get("MUTANT"):
    where, _, index = chosen.rpartition(":")
    sys.meta_path.insert(0, _MutantFinder(where, int(index)))
