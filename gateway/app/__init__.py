"""One gateway process, put together: its services, its start, reload, drain and end.

`services.py` is the composition root: nothing else creates what lives as long as the process.
"""
