"""Real agents, unmodified, that do a task through the gateway; see README.md."""
