"""One configured server, kept alive: its sessions, its lifecycle, what it may do, and what happens when it fails.

`upstream.py` is what the rest of the proxy uses; `session.py` is one negotiated conversation, `members.py` opens
sessions, `pool.py` holds those besides the main one, `supervisor.py` starts and restarts the server and puts it to
sleep.
"""
