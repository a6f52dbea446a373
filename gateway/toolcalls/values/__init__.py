"""Values as models write them, read piece by piece: JSON, Python's literals, and their dialects."""
