"""Programs that stand in for servers of others. Each says in its name what it is, and what is real behind it."""
