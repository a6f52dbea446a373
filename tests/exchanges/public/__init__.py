"""Twenty public MCP servers, each through other people's MCP clients: directly, and with the gateway in between."""
