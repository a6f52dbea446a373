"""`/v1`: chat completions, completions and their frames, in OpenAI's shapes."""
