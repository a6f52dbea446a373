"""Whose a `requestState` is: of a call that waits here, or of a modern server that wants it back as it gave it.

A modern client sees both kinds, and the server may be a gateway like this one, whose states begin as ours do. So a
server's state that could be taken for ours goes out with a mark before it, and loses it on its way back.
"""

from collections.abc import Mapping
from typing import Any, Final

PARKED: Final = "codec-gateway."
"""What our own begin with."""
_RELAYED: Final = "relayed."
"""The mark. A server's state that begins with it gets it too, so that exactly one is taken off again."""


def is_parked(params: Mapping[str, Any]) -> bool:
    """Whether a request goes on with a call that is parked here (or claims so)."""
    state = params.get("requestState")
    return isinstance(state, str) and state.startswith(PARKED)


def to_client(result: dict[str, Any]) -> dict[str, Any]:
    """A server's `input_required` as the client gets it."""
    state = result.get("requestState")
    if not isinstance(state, str) or not state.startswith((PARKED, _RELAYED)):
        return result
    return {**result, "requestState": _RELAYED + state}


def to_server(params: dict[str, Any]) -> dict[str, Any]:
    """The params of a client's next round as the server gets them."""
    state = params.get("requestState")
    if not isinstance(state, str) or not state.startswith(_RELAYED):
        return params
    return {**params, "requestState": state.removeprefix(_RELAYED)}
