"""The MCP face: both protocol eras, over Streamable HTTP and over standard input and output."""

from gateway.serve.mcp.endpoint import McpFace

__all__ = ["McpFace"]
