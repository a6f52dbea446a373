"""Allows a gateway behind a gateway, and refuses one that starts itself.

The configuration with which an MCP client starts the gateway may be the one that the gateway itself is given: then it
starts itself, and that one starts itself again, without end. Each gateway tells its children how deep they are nested;
a depth that nobody needs is refused. It starts nothing.
"""

from collections.abc import Mapping
from typing import Final

from gateway.errors import ConfigError

DEPTH_VARIABLE: Final = "CODEC_NESTED_GATEWAYS"
"""In a child's environment: how many gateways are above it."""

_DEEPEST: Final = 2


def nesting_depth(environ: Mapping[str, str]) -> int:
    """How many gateways are above this process."""
    depth = environ.get(DEPTH_VARIABLE, "0")
    return int(depth) if depth.isdecimal() else 0


def refuse_nesting(environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` in a gateway that was started by a gateway that was started by a gateway."""
    if nesting_depth(environ) >= _DEEPEST:
        raise ConfigError(
            "a gateway started this one and was itself started by a gateway; the configuration probably names the "
            "gateway itself: remove that entry from its servers"
        )
