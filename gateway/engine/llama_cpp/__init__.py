"""A llama.cpp server: its connections, questions, streams of ids, and the ids that it holds back."""
