"""Tools on the wire (extra `mcp`): an MCP server made a leaf, and bolt-on tools over MCP and over HTTP.

`middleware` makes a leaf of a server you have; `bolt_on` is a bolt-on's HTTP face and `mcp_server` its MCP face; `run`
holds the sockets. Stands on `leaf`.
"""

from .middleware import leaf_middleware, make_leaf

__all__ = ["leaf_middleware", "make_leaf"]
