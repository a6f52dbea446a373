"""Bolt-on tools as a server like any other: described by manifests, called with token ids where both sides agree on
a map.

`bolt_on_tools` reads the manifests and decides where each tool may be called, `bolt_on_calls` whether it has ids for an
accepted map, writes a call and reads its answer, `bolt_on_transport` joins them as a `Transport`.
"""

from gateway.proxy.bolt_on.bolt_on_tools import BoltOnStatus, HeldMaps, KnownMaps, NoMaps
from gateway.proxy.bolt_on.bolt_on_transport import open_bolt_on

__all__ = [
    "BoltOnStatus",
    "HeldMaps",
    "KnownMaps",
    "NoMaps",
    "open_bolt_on",
]
