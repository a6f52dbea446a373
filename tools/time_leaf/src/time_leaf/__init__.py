"""A leaf server to copy: the time, as text and as token ids.

`clock` knows the time and nothing of MCP, `server` turns it into two MCP tools and `bolt_on` into two bolt-ons,
`precache` builds their caches, `__main__` reads the environment and runs them.
"""
