"""A plain MCP server that knows nothing of token ids: what the gateway's shim is measured with."""
