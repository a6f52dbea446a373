"""The official MCP conformance suite against the gateway and the reference server behind it: `make conformance`."""
