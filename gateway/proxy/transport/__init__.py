"""How a server is reached: one MCP connection over stdio or HTTP, and what it needs.

`transport_interface.py` says what every connection can do, `proxy/transport/stdio/stdio_transport.py` and
`proxy/transport/http/http_transport.py` implement it, `proxy/connector.py` opens the one that a server's configuration
asks for.
"""
