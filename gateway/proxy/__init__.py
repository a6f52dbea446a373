"""The MCP servers behind the gateway: connected, supervised, named and called; and the token ids of their results."""
