"""Ends the servers' processes when the gateway was killed and can't do it itself.

A small shell in a session of its own is told over a pipe, line by line, which process groups are ours. That pipe closes
when the gateway ends, whatever the reason; then the shell ends every group that it still knows of. Most servers exit by
themselves when their input ends, so they get a moment to do so; one that hangs would otherwise stay for ever. It knows
no servers.
"""

import asyncio
import os
from contextlib import suppress
from typing import Final

import anyio

from gateway.observe.logs import get_logger

_SHELL: Final = "/bin/sh"
_MOMENT: Final = 2
"""Seconds to wait before TERM, and again before KILL."""
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
    """Guards the process groups of one gateway's servers."""

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._pipe = -1
        self._missing = False

    async def hold(self, group: int) -> None:
        """Have this process group ended when the gateway is gone. The first call starts the shell."""
        async with self._starting:
            if self._process is None and not self._missing:
                await self._start()
        self._tell(f"hold {group}\n")

    def release(self, group: int) -> None:
        """Forget this process group, which has ended: its number may be reused."""
        self._tell(f"drop {group}\n")

    async def close(self) -> None:
        """End the shell, which first ends the groups that it still knows of."""
        if self._process is not None:
            os.close(self._pipe)
            self._pipe = -1
            await self._process.wait()

    async def _start(self) -> None:
        source, pipe = os.pipe()
        try:
            # Shielded because a shell whose start is cancelled would run on and hold the pipe, without our knowing it.
            with anyio.CancelScope(shield=True):
                self._process = await asyncio.create_subprocess_exec(
                    *(_SHELL, "-c", _SCRIPT, "codec-gateway-watchdog"),
                    stdin=source,
                    # Whoever reads the gateway's output must not have to wait for the shell to end.
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            self._missing = True
            os.close(pipe)
            get_logger("gateway.proxy").warning(
                "the watchdog did not start: servers that hang outlive the gateway if it is killed",
                cause=f"{_SHELL}: {error.strerror}",
            )
        else:
            os.set_blocking(pipe, False)
            self._pipe = pipe
        finally:
            os.close(source)

    def _tell(self, line: str) -> None:
        if self._pipe >= 0:
            # If somebody has ended the shell, we are no worse off than without one.
            with suppress(OSError):
                os.write(self._pipe, line.encode())
