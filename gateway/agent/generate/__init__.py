"""One generation: what it may write, how it is held to it, and what the model wrote."""
