"""The pages of docs/ that are made from the code: `python -m pages` writes them, and a test compares them with it."""
