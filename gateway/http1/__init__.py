"""HTTP/1.1 as a client speaks it: one connection, where it goes to, and what can go wrong on it."""
