"""Whose a `requestState` is: that of a call parked here, or that of a modern server, which wants it back unchanged.

A modern client sees both kinds, and the server may be a gateway like this one, whose states begin like ours. So a
server's state that could be taken for ours gets a prefix on its way to the client, and loses it on its way back.
"""

from collections.abc import Mapping
from typing import Any, Final

PARKED: Final = "codec-gateway."
"""Prefix of our own states."""
_RELAYED: Final = "relayed."
"""The prefix for a server's state. A state that begins with it already gets it too, so exactly one is removed."""


def is_parked(params: Mapping[str, Any]) -> bool:
    """Whether a request continues a call that is parked here, or claims to."""
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
