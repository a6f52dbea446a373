"""Tools as servers (extra `mcp`): an MCP server made a leaf, and bolt-on tools over MCP and over HTTP.

`middleware` makes a leaf of a server you have; `bolt_on` serves bolt-ons over HTTP and `mcp_server` over MCP; `run`
holds the sockets. Builds on `leaf`.
"""

from .middleware import leaf_middleware, make_leaf

__all__ = ["leaf_middleware", "make_leaf"]
