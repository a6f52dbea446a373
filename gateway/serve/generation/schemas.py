"""How many tools a request may define, and how much their schemas may hold. Pure."""

from collections.abc import Iterable
from typing import Final

from gateway.errors import RequestInvalid
from gateway.toolcalls.schema.keywords import is_larger

MOST_TOOLS: Final = 1024
"""Maximum number of tools of a request (OpenAI takes 128)."""
_VALUES: Final = 50_000
"""Maximum number of values in the schemas of all tools of a request: each is written for the template by itself."""


def check_schemas(schemas: Iterable[object]) -> None:
    """Raise `RequestInvalid` where the schemas of a request's tools hold too many values in all."""
    # The list of them is a value too.
    if is_larger(list(schemas), _VALUES + 1):
        raise RequestInvalid(
            f"tools: the schemas have more than {_VALUES} values in all: send fewer or smaller ones", param="tools"
        )
