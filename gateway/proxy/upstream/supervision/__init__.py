"""The sessions with one server: opened, chosen, watched and kept alive."""
