"""How a server is reached: one connection of MCP over stdio or HTTP, with what stands around it.

`interface.py` says what every connection can do, `proxy/transport/stdio/transport.py` and
`proxy/transport/http/transport.py` do it, `proxy/connector.py` opens the one that a server's configuration asks for.
"""
