"""Codec-aware MCP gateway: token ids are the truth from the tool to the model's KV cache.

`docs/architecture.md` is the map of the packages. Programs start at `gateway.__main__`; everything here is built by
explicit factories, and importing a module never does anything.
"""

__version__ = "0.1.0"
