"""What a person writes on the command line to tools and maps: `PACKAGE`, `PACKAGE:NAME`, a manifest, `[MODEL=]MAP`.

A package is imported as Python would from the folder where the command runs, and so its code runs: it is the author's
own. A manifest is only read.
"""

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from leaf_sdk.errors import BoltOnError
from leaf_sdk.fetch import open_map
from leaf_sdk.leaf.bolt_on.files import MANIFEST_NAME
from leaf_sdk.leaf.bolt_on.source import ModelMap, ToolSource
from leaf_sdk.vocab import map_digest

TOOLS = "TOOLS"
"""The name of a package's tools: a list or tuple of `ToolSource`, or a single one."""


def is_manifest(target: str) -> bool:
    """Return whether a target is a manifest's file or folder, and not a package."""
    path = Path(target)
    return path.suffix == ".json" or (path / MANIFEST_NAME).is_file()


def tools_of(target: str) -> list[ToolSource]:
    """Import a package's tools.

    Args:
        target: `package`, `package.module` or either with `:NAME`. The default name is `TOOLS`, in the module or in
            its `bolt_on`.

    Raises:
        BoltOnError: no such module, or it names no tools.
    """
    module_name, _, name = target.partition(":")
    module = _module(module_name)
    found: object = getattr(module, name or TOOLS, None)
    if found is None and not name:
        found = getattr(_module(f"{module_name}.bolt_on", optional=True), TOOLS, None)
    if isinstance(found, ToolSource):
        return [found]
    tools = list(cast("list[object]", found)) if isinstance(found, list | tuple) else []
    if not tools or not all(isinstance(tool, ToolSource) for tool in tools):
        raise BoltOnError(
            f"{target!r} has no tools, expected a list of ToolSource named {name or TOOLS} in {module_name!r}"
        )
    return cast("list[ToolSource]", tools)


def function_of(target: str) -> Callable[[Mapping[str, Any]], Any]:
    """Import one function, `module:name`. Raises `BoltOnError`: there is no such function."""
    module_name, _, name = target.partition(":")
    found: object = getattr(_module(module_name), name, None) if name else None
    if not callable(found):
        raise BoltOnError(f"{target!r} is not a function, expected module:name")
    return cast("Callable[[Mapping[str, Any]], Any]", found)


def model_of(argument: str) -> ModelMap:
    """Open the map of `MODEL=SOURCE`, or of a source alone; the model's name is then the map's own id.

    Raises:
        MapError: the map can't be obtained.
    """
    model, source = _split(argument)
    token_map = open_map(source)
    return ModelMap(model or token_map.id, token_map, _published_hash(source, token_map.map_id))


def source_of(argument: str) -> str:
    """Return only the source of `MODEL=SOURCE`."""
    return _split(argument)[1]


def _split(argument: str) -> tuple[str, str]:
    model, equals, source = argument.partition("=")
    # An address may contain `=`, and so may a file's name: then the whole argument is the source.
    if not equals or "://" in model or Path(argument).exists():
        return "", argument
    return model, source


def _published_hash(source: str, map_id: str) -> str:
    """Name a tokenizer.json by its own hash, which is the same for everybody; that of a map built from it is not."""
    path = Path(source)
    own = map_digest(path.read_bytes()) if path.suffix == ".json" and "://" not in source else map_id
    return own.removeprefix("sha256:")


def _module(name: str, *, optional: bool = False) -> object:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name):
        raise BoltOnError(
            f"{name!r} is neither a package nor a manifest, expected package.module or a folder with manifest.json"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # If the package itself lacks a module, its author should be told which.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise BoltOnError(f"{name!r} can't be imported: it needs {error.name!r}, which is not installed") from error
        if optional:
            return None
        raise BoltOnError(
            f"there is no module {error.name!r}, expected an installed package or one in this folder; "
            "to install yours, run pip install -e FOLDER"
        ) from error
