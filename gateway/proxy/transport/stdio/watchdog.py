"""What ends the servers' processes when the gateway itself was killed and can't.

A small shell of its own session is told which process groups are ours, line by line over a pipe. That pipe closes when
the gateway ends, however that comes: then the shell ends every group that it still knows of. Most servers leave by
themselves when their input ends, which is why they get a moment; one that hangs would otherwise stay for ever. It knows
no server.
"""

import asyncio
import os
from contextlib import suppress
from typing import Final

import anyio

from gateway.observe.logs import get_logger

_SHELL: Final = "/bin/sh"
_MOMENT: Final = 2
"""Seconds before TERM, and again before KILL."""
_SCRIPT: Final = f"""
trap '' HUP INT TERM
held=''
while read -r what group; do
  if [ "$what" = hold ]; then held="$held $group"; continue; fi
  left=''
  for each in $held; do [ "$each" = "$group" ] || left="$left $each"; done
  held=$left
done
[ -n "$held" ] || exit 0
for number in TERM KILL; do
  sleep {_MOMENT}
  for group in $held; do kill -$number "-$group" 2>/dev/null; done
done
"""


class Watchdog:
    """Holds the process groups of one gateway's servers."""

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._pipe = -1
        self._missing = False

    async def hold(self, group: int) -> None:
        """End this process group when the gateway is gone. The first one starts the shell."""
        async with self._starting:
            if self._process is None and not self._missing:
                await self._start()
        self._tell(f"hold {group}\n")

    def release(self, group: int) -> None:
        """It has ended: its number may be another's from now on."""
        self._tell(f"drop {group}\n")

    async def close(self) -> None:
        """End the shell; what it still holds it ends first."""
        if self._process is not None:
            os.close(self._pipe)
            self._pipe = -1
            await self._process.wait()

    async def _start(self) -> None:
        source, pipe = os.pipe()
        try:
            # Given up in the middle, it would run on and hold the pipe, and nobody would know of it.
            with anyio.CancelScope(shield=True):
                self._process = await asyncio.create_subprocess_exec(
                    *(_SHELL, "-c", _SCRIPT, "codec-gateway-watchdog"),
                    stdin=source,
                    # Whoever reads what the gateway says is not to wait for this one.
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            self._missing = True
            os.close(pipe)
            get_logger("gateway.proxy").warning(
                "servers that hang would outlive a gateway that is killed: its watchdog did not start",
                cause=f"{_SHELL}: {error.strerror}",
            )
        else:
            os.set_blocking(pipe, False)
            self._pipe = pipe
        finally:
            os.close(source)

    def _tell(self, line: str) -> None:
        if self._pipe >= 0:
            # Should somebody have ended the shell, servers are no worse off than without it.
            with suppress(OSError):
                os.write(self._pipe, line.encode())
