"""A llama.cpp server of our own: its model's file, its process, and why it ended."""
