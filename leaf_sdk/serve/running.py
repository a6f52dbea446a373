"""A bolt-on tool's function and arguments to what it says: plain or async, its mistakes turned into one sentence.

The one place in the SDK where an author's code is called for somebody outside. What it raises on purpose is passed on;
anything else is logged here with its traceback, and the caller learns only that it happened.
"""

import inspect
import logging
from collections.abc import Mapping
from typing import Any

import anyio.to_thread

from leaf_sdk.errors import CallInvalid
from leaf_sdk.leaf.bolt_on import CodecTool, Filled, ToolRefusal

_LOG = logging.getLogger(__name__)


async def run_tool(tool: CodecTool, arguments: Mapping[str, Any]) -> str | Filled:
    """Run a tool's function; a plain one in a thread, so that a slow one holds up nobody else.

    Raises:
        ToolRefusal: the tool refused, or it failed; the message may be shown.
        CallInvalid: a required argument is missing.
    """
    checked = tool.checked(arguments)
    try:
        if inspect.iscoroutinefunction(tool.function):
            output: object = await tool.function(checked)
        else:
            output = await anyio.to_thread.run_sync(tool.function, checked)
    except (ToolRefusal, CallInvalid):
        raise
    except Exception as error:
        _LOG.exception("tool %r failed", tool.manifest.name)
        raise ToolRefusal(f"tool {tool.manifest.name!r} failed; its log says why", "E_INTERNAL") from error
    if not isinstance(output, str | Filled):
        _LOG.error(
            "tool %r returned a %s, expected a str or the result of fill()", tool.manifest.name, type(output).__name__
        )
        raise ToolRefusal(f"tool {tool.manifest.name!r} failed; its log says why", "E_INTERNAL")
    return output
