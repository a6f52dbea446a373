"""How often the search finds the tool that a query means."""
