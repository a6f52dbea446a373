"""Servers of OpenAI's API measured the same way: requests from a seed or a trace, and figures of what came back."""
