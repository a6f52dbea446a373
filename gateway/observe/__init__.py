"""Logs, metrics, the audit log and traces: what a gateway reports about itself.

structlog, on which the logs are built, loads rich for coloured tracebacks if it finds it. `logs.py` writes tracebacks
itself, as JSON or plain text. So rich is hidden from structlog here, before any module of this package loads it, which
saves 40 ms and a few megabytes at the start. Commands that show tables load rich afterwards, as usual.
"""

import sys
from importlib import import_module
from typing import Any, cast


def _load_structlog_alone() -> None:
    modules = cast("dict[str, Any]", sys.modules)
    if "rich" in modules or "structlog" in modules:
        return
    modules["rich"] = None  # how the import system marks a module that can't be imported
    try:
        import_module("structlog")
    finally:
        del modules["rich"]


_load_structlog_alone()
