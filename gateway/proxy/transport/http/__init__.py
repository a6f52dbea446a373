"""MCP servers over Streamable HTTP: connections, requests, streams of events, sessions."""
