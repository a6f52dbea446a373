"""What an MCP call costs on its way through a gateway: ours, others of its kind, and a bare relay. `make bench-mcp`."""
