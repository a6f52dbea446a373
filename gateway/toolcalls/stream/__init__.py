"""A generation as it comes: ids to guarded text, calls to events, events to deltas."""
