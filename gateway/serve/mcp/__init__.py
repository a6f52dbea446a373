"""The MCP endpoint: both protocol eras, over Streamable HTTP and over standard input and output."""

from gateway.serve.mcp.endpoint import McpEndpoint

__all__ = ["McpEndpoint"]
