"""One gateway process: its services put together, and its start, reload, drain and end.

`services.py` is the composition root; `mcp_services.py` is the part of it that `stdio` needs. Nothing else creates
objects that live as long as the process.
"""
