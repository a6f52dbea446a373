"""What clients reach: `/v1`, `/mcp` over HTTP and standard streams, frames of ids, the admin port; and who may call."""
