"""One gateway process, put together: its services, its start, reload, drain and end.

`services.py` is the composition root, with `mcp_services.py` for what `stdio` has of it: nothing else creates what
lives as long as the process.
"""
