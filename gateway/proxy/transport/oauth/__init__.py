"""Access tokens for MCP servers over HTTP: metadata found, client credentials exchanged."""
