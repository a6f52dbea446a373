"""Logs, metrics, the audit log and traces: what a gateway says of itself.

structlog, which the logs stand on, loads rich for painted tracebacks if it finds it. Ours are written by `logs.py`, in
JSON or plain words, so it is told here, before any module of this package loads it, that there is none: a start is 40
ms and some megabytes the cheaper. Commands that show tables load rich afterwards, as ever.
"""

import sys
from importlib import import_module
from typing import Any, cast


def _load_structlog_alone() -> None:
    modules = cast("dict[str, Any]", sys.modules)
    if "rich" in modules or "structlog" in modules:
        return
    modules["rich"] = None  # the import system's own sign for a module that can't be imported
    try:
        import_module("structlog")
    finally:
        del modules["rich"]


_load_structlog_alone()
