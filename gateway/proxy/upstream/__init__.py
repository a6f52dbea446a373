"""One configured server, kept alive: its sessions, its lifecycle, what it may do, and what happens when it fails.

`upstream.py` is what the rest of the proxy uses. `session/` is one session, `supervision/` opens sessions, chooses
among them, restarts the server and puts it to sleep, and `items/` reads what it lists.
"""
