"""Results that are too large for a model: what it sees of them, and how it reads on in them."""
