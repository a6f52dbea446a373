"""Engines: servers that generate, started by us or by somebody else, which take and return token ids."""
