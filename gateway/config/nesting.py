"""A gateway behind a gateway, and the mistake that looks like one.

A configuration that an MCP client uses to start us can be the very one we are given: then a gateway starts itself, and
that one itself again, without end. Each gateway tells its children how deep they stand; a depth that nobody needs is
refused. It starts none.
"""

from collections.abc import Mapping
from typing import Final

from gateway.errors import ConfigError

DEPTH_VARIABLE: Final = "CODEC_NESTED_GATEWAYS"
"""In a child's environment: how many gateways stand above it."""

_DEEPEST: Final = 2


def nesting_depth(environ: Mapping[str, str]) -> int:
    """How many gateways stand above this process."""
    depth = environ.get(DEPTH_VARIABLE, "0")
    return int(depth) if depth.isdecimal() else 0


def refuse_nesting(environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` in a gateway that was started by a gateway that was started by a gateway."""
    if nesting_depth(environ) >= _DEEPEST:
        raise ConfigError(
            "a gateway was started by a gateway that was started by a gateway; the configuration probably names the "
            "gateway itself: remove that entry from its servers"
        )
