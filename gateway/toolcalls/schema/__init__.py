"""JSON Schemas of tools, as far as a call's arguments need them: reads them, takes them apart, checks values."""
