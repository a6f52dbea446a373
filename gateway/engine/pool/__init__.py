"""Several engines as one: which of them answers a conversation, and what takes its place if it is lost."""
