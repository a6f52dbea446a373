"""MCP servers as child processes: lines on their standard streams, their start and end."""
