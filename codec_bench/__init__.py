"""Measures servers of OpenAI's API in the same way: requests from a seed or a trace, and figures of the answers."""
