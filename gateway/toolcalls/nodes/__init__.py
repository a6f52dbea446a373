"""The nodes from which a call format is built: each reads one part of a message and writes the grammar for it."""
