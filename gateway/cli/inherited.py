"""Keeps descriptors that this process was started with from the processes that it starts itself.

They may be a shell's lock or systemd's listening sockets. A third-party server that inherits such a socket could answer
requests in the gateway's place, and read their tokens. Python closes such descriptors in its children; the event loop
that the gateway runs on does not.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_FIRST: Final = 3
_OPEN: Final = Path("/proc/self/fd")


def keep_inherited_to_ourselves() -> None:
    """Mark every descriptor from 3 up to be closed in other programs that are started. They stay open here."""
    for path in list(_OPEN.iterdir()):
        number = int(path.name)
        if number >= _FIRST:
            # One of them belonged to the listing itself, and is closed by now.
            with suppress(OSError):
                os.set_inheritable(number, False)
