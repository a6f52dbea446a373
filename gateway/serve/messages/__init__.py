"""`/v1/messages`: answers as blocks, in the shapes of the Messages API."""
