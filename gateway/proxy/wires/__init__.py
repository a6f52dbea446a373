"""How a server is reached: one connection of MCP over stdio or HTTP, with what stands around it.

`wire.py` says what every connection can do, `stdio.py` and `http.py` do it, `dialling.py` opens the one that a server's
configuration asks for.
"""
