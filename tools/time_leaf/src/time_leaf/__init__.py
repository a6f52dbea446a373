"""The copy-me leaf server: the time, as text and as token ids.

`clock` knows the time and nothing of MCP, `server` makes two MCP tools of it and `bolt_on` two bolt-ons, `precache`
builds their caches, `__main__` reads the environment and runs them.
"""
