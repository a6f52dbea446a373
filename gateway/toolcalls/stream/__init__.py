"""A generation as it arrives: ids to guarded text, calls to events, events to deltas."""
