"""A server's process: started, listened to, and ended.

Turns a command into a process in a group of its own with the few variables that it needs, its output into calls of
`on_output`, its standard error into our log, and its end into one call of `on_end` that says how. Ends it as the MCP
lifecycle asks (close stdin, wait, TERM, KILL), and what it left behind. It knows no line and no message.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.model import UpstreamConfig
from gateway.config.nesting import DEPTH_VARIABLE, nesting_depth
from gateway.proxy.transport.server_log import ServerLog
from gateway.proxy.transport.stdio.gathered import Gathered
from gateway.proxy.transport.stdio.output import Output
from gateway.proxy.transport.stdio.watchdog import Watchdog

INHERITED: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""What a child sees of our environment: no secret that it was not given by name (MCP's own list, and the locale)."""
_EXIT_GRACE: Final = 2.0
"""Seconds a child gets to leave after its stdin closed, and again after TERM."""
_LAST_WORDS: Final = 0.5
"""Seconds between a process's end and that of its output, or the reverse, in which the other may still come."""
_POLL: Final = 0.01
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def child_environment(extra: Mapping[str, str], outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The whole environment of a child: the inherited few, how deep it stands, then what the configuration adds."""
    inherited = {name: outer[name] for name in INHERITED if name in outer}
    return {**inherited, DEPTH_VARIABLE: str(nesting_depth(outer) + 1), **extra}


class Child(asyncio.SubprocessProtocol):
    """One process and its three pipes."""

    def __init__(
        self,
        on_output: Callable[[bytes], None],
        on_end: Callable[[str], None],
        log: FilteringBoundLogger,
        server_log: ServerLog,
    ) -> None:
        """`on_end` is called once, with a sentence, when the process is gone or no longer listens or speaks."""
        self.room = asyncio.Event()
        """Clear while the process does not read what was written to it; set for good at the end."""
        self.room.set()
        self.full = False
        """Whether `room` is clear; cheap enough to be asked at every call."""
        self.exited = asyncio.Event()
        self._outputs = {_STDOUT: Output(on_output), _STDERR: Output(server_log.stderr)}
        self._on_end = on_end
        self._log = log
        self._server_log = server_log
        self._ended = False
        self._gone = asyncio.Event()
        self._unsent = Gathered(self._send)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(_STDIN))
        self.pid = self._transport.get_pid()

    def write(self, data: bytes) -> None:
        """Hand over bytes, whether or not there is `room`; after the end they go nowhere."""
        self._unsent.add(data)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Output or standard error."""
        self._outputs[fd].take(data, cast("asyncio.ReadTransport", self._transport.get_pipe_transport(fd)))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Without either of the two pipes there is no conversation, whether the process lives or not."""
        if fd in (_STDIN, _STDOUT):
            self._end_soon()

    def process_exited(self) -> None:
        """It is gone; what it wrote before may still be in the pipe, or a grandchild may hold that open."""
        self.exited.set()
        self._end_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Everything of it is closed."""
        self._gone.set()

    def pause_writing(self) -> None:
        """It does not read."""
        self.full = True
        self.room.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self.full = False
        self.room.set()

    def end_conversation(self, cause: str) -> None:
        """Say `on_end`, unless that was said before."""
        if not self._ended:
            self._unsent.flush()
            self._ended = True
            self.full = False
            self.room.set()
            self._on_end(cause)

    def _send(self, data: bytes) -> None:
        if not self._ended:
            self._stdin.write(data)

    async def end(self) -> None:
        """Close its stdin, wait, TERM its group, wait, KILL its group (MCP lifecycle, "Shutdown": stdio)."""
        # What it has not read by now would keep its input open.
        if self._stdin.get_write_buffer_size():
            self._stdin.abort()
        else:
            self._stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await self._has_exited():
                break
            self._log.debug("upstream did not leave", pid=self.pid, signal=number.name)
            self._signal_group(number)
        if await self._has_exited():
            await self._end_orphans()
        else:
            self._log.warning("upstream process survives being killed", pid=self.pid)
        self._transport.close()
        with anyio.move_on_after(_EXIT_GRACE):
            await self._gone.wait()
        self._server_log.close()

    def _stdout_is_over(self) -> bool:
        stdout = self._transport.get_pipe_transport(_STDOUT)
        return stdout is None or stdout.is_closing()

    def _end_soon(self) -> None:
        def end() -> None:
            self._outputs[_STDOUT].when_heard(lambda: self.end_conversation(self._describe()))

        # Its input is lost with the process, and says nothing of what is still in its output.
        if self.exited.is_set() and self._stdout_is_over():
            end()
        elif not self._ended:
            asyncio.get_running_loop().call_later(_LAST_WORDS, end)

    def _describe(self) -> str:
        code = self._transport.get_returncode()
        if code is None:
            return "its process closed its input or output"
        return f"its process ended (signal {-code})" if code < 0 else f"its process ended (exit code {code})"

    async def _end_orphans(self) -> None:
        """What the process started, and left behind in its group when it left by itself: TERM, wait, KILL.

        The group's number is not given to anyone else while one of it lives.
        """
        with anyio.move_on_after(_EXIT_GRACE):
            number = signal.SIGTERM
            while self._signal_group(number):
                number = 0
                await anyio.sleep(_POLL)
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> bool:
        """Whether there was anyone in the process's group to signal; 0 only asks."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def _has_exited(self) -> bool:
        """Whether it leaves within the grace."""
        with anyio.move_on_after(_EXIT_GRACE):
            await self.exited.wait()
        return self.exited.is_set()


@asynccontextmanager
async def run_child(config: UpstreamConfig, child: Child, watchdog: Watchdog | None = None) -> AsyncGenerator[None]:
    """Run the upstream's command as `child`; leaving the context ends the process, whatever it does.

    `watchdog` ends it where the gateway can't.

    Raises:
        OSError: the program can't be started.
    """
    # Given up in the middle, asyncio would leave the pipes open that it had not joined yet.
    with anyio.CancelScope(shield=True):
        await asyncio.get_running_loop().subprocess_exec(
            lambda: child,
            config.command or "",
            *config.args,
            env=child_environment(config.env),
            cwd=config.cwd,
            start_new_session=True,
        )
    try:
        if watchdog is not None:
            await watchdog.hold(child.pid)
        yield
    finally:
        child.end_conversation("the gateway ended it")
        with anyio.CancelScope(shield=True):
            await child.end()
        if watchdog is not None:
            watchdog.release(child.pid)
