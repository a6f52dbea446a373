"""A gateway under mixed operations for minutes: `make soak`."""
