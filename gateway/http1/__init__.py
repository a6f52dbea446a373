"""The client side of HTTP/1.1: one connection, and what can go wrong on it."""
