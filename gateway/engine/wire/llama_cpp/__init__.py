"""A llama.cpp server: its client, questions to it, its streams of ids, and the ids that they lose."""
