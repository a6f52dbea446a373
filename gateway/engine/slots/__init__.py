"""Slots of an engine that is ours: which one a generation gets, and their states in files."""
