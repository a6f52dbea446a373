"""`/v1/responses`: answers as items, and the responses that are stored."""
