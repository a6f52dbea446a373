"""The client side of HTTP/1.1: one connection, where it goes, and what can go wrong on it."""
