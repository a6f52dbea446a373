"""Access tokens for MCP servers over HTTP: finding metadata, and exchanging client credentials for tokens."""
