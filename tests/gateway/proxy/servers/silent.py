"""Reads and never says a word, not even in the handshake."""

import os
import sys

from transport import note

note(f"pid {os.getpid()}")
for _ in sys.stdin:
    pass
