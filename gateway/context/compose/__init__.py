"""From a history and what is remembered of it to the ids of a prompt."""
