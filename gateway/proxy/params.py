"""Whether the params of a request can be written as JSON.

Turns params from a client or a model into None, or into words that say what is wrong with them. Checked in the caller's
own task: the tasks that write to an upstream are shared by all its calls, and a message that broke one of them would
fail the other calls too. Pure; it knows no upstream.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

_WRITER: Final = TypeAdapter(dict[str, Any])


def why_unwritable(params: Mapping[str, Any]) -> str | None:
    """Why the params can't be written as JSON, as a clause to follow a name or a colon; None: they can.

    The same writer writes the message later, in which the params are nested deeper. The wrapping makes up for that:
    without it, the deepest value that passes here would fail there.
    """
    try:
        _WRITER.dump_json({"params": {"params": params}})
    except ValueError as error:
        if "surrogates not allowed" in str(error):
            return "its arguments contain half a surrogate pair (U+D800 to U+DFFF): send whole characters only"
        return "its arguments are nested too deeply for JSON (more than about 250 levels): nest them less deeply"
    return None
