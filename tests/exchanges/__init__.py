"""The same calls to public MCP servers, directly and through the gateway: what comes out must be equal as JSON."""
