"""JSON Schemas of tools, as far as a call's arguments need them: read, taken apart, held against a value."""
