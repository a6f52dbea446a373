"""Every exception class of the gateway stands in the tree, or beside it with the package that it does not leave."""

import ast
import re
from pathlib import Path

import pytest

from gateway import errors

GATEWAY = Path(errors.__file__).parent
DRAWN = (errors.__doc__ or "").partition("Some exceptions stand outside")
IN_TREE = set(re.findall(r"[├└]── (\w+)", DRAWN[0])) | {"GatewayError"}
OUTSIDE = {
    package.replace(".", "/"): set(names.split(", "))
    for package, names in re.findall(r"^([\w.]+)  +(\w[\w, ]+)$", DRAWN[2], re.MULTILINE)
}
KNOWN = {"Exception", "ValueError", "LookupError", "OSError", "RuntimeError", "KeyError"}


def raised() -> list[tuple[str, str, str]]:
    """Each class that is an exception: its module, its name, its first base."""
    classes = [
        (str(path.relative_to(GATEWAY)), node.name, node.bases[0].id)
        for path in sorted(GATEWAY.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name)
    ]
    known, found = set(KNOWN), list[tuple[str, str, str]]()
    while new := [entry for entry in classes if entry[2] in known and entry not in found]:
        found += new
        known |= {name for _, name, _ in new}
    return found


@pytest.mark.parametrize(("module", "name", "base"), raised(), ids=lambda part: part)
def test_every_exception_is_drawn(module: str, name: str, base: str) -> None:
    if name in IN_TREE:
        return
    packages = [package for package, names in OUTSIDE.items() if name in names]

    assert packages, f"{name} stands in no tree: draw it in gateway/errors.py"
    assert module.startswith(packages[0]), f"{name} is drawn at {packages[0]}"


def test_what_is_drawn_is_there() -> None:
    assert {name for _, name, _ in raised()} == IN_TREE.union(*OUTSIDE.values())
