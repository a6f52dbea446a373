"""Servers over stdio that several workers share: one process each, behind a Unix socket of the parent."""
