"""What whoever started this process left open for it, kept from the processes that it starts itself.

A shell's lock, systemd's listening sockets: a server of somebody else's that inherits the socket answers requests in
the gateway's place, and reads their tokens. Python closes such descriptors in its children, the event loop that the
gateway runs on does not.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_FIRST: Final = 3
_OPEN: Final = Path("/proc/self/fd")


def keep_inherited_to_ourselves() -> None:
    """Mark every descriptor from 3 up to be closed when another program begins. They stay open here."""
    for path in list(_OPEN.iterdir()):
        number = int(path.name)
        if number >= _FIRST:
            # One of them was the listing's own, and is closed by now.
            with suppress(OSError):
                os.set_inheritable(number, False)
