"""One configured server, kept alive: its sessions, its life, what it may do and what happens when it fails.

`upstream.py` is what the packages above ask; `session.py` is one negotiated connection, `pool.py` and `members.py` hold
several, `supervisor.py` starts, restarts and rests them.
"""
