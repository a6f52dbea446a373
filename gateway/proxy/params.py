"""Whether the params of a request can be written as JSON at all.

Turns params that came from a client or a model into None, or into a sentence that says what is wrong with them. Asked
in the caller's own path: the tasks that write to an upstream are shared by all of its calls, and a message that broke
one of them would take the others down. Pure; it knows no upstream.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

_WRITER: Final = TypeAdapter(dict[str, Any])


def why_unwritable(params: Mapping[str, Any]) -> str | None:
    """What keeps the params from the transport, as words that can follow a name; None where nothing does.

    The same writer writes the message later. There the params lie one level deeper than here, inside the message:
    hence the wrapping, without which the deepest value that passes here would fail there.
    """
    try:
        _WRITER.dump_json({"params": {"params": params}})
    except ValueError as error:
        if "surrogates not allowed" in str(error):
            return (
                "its arguments hold half a surrogate pair (U+D800 to U+DFFF), which is not a character: send whole ones"
            )
        return "its arguments are nested too deep for JSON (about 250 levels): send them flatter"
    return None
