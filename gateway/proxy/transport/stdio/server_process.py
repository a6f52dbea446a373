"""A server's process: started, listened to, and ended.

Turns a command into a process in a group of its own, with only the environment variables that it needs; its output into
calls of `on_output`, its standard error into our log, and its end into one call of `on_end` with the cause. Ends it as
the MCP lifecycle asks (close stdin, wait, TERM, KILL), along with what it left behind. It knows no line and no message.
"""

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.gateway_config import UpstreamConfig
from gateway.config.programs import DEPTH_VARIABLE, find_program, inherited, nesting_depth
from gateway.observe.logs import get_logger
from gateway.protocol.lines import portions
from gateway.proxy.transport.transport_interface import ServerLog

# Ends the servers' processes when the gateway was killed. A small shell in a session of its own is told over a pipe
# which process groups are ours. That pipe closes when the gateway ends, whatever the reason; then the shell ends every
# group that it still knows of. Most servers exit by themselves when their input ends, so they get a moment to do so.

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
        self._pipe: int | None = None
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
        if self._process is not None and self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
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
        if self._pipe is not None:
            # If somebody has ended the shell, we are no worse off than without one.
            with suppress(OSError):
                os.write(self._pipe, line.encode())


# Each write wakes the reader, which costs both sides more than everything else that is done for a call
# (bench/README.md). So the bytes of one iteration of the event loop are written together.

_MOST: Final = 64 * 1024
"""Bytes that may be gathered before they are written: few enough to notice soon that nobody reads."""


class GatheredBytes:
    """The bytes that were handed over in this iteration of the loop."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._unsent: list[bytes] = []
        self._size = 0

    def add(self, data: bytes) -> None:
        """Write these bytes soon."""
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered now."""
        unsent, self._unsent, self._size = self._unsent, [], 0
        if unsent:
            self._send(unsent[0] if len(unsent) == 1 else b"".join(unsent))


class PipeOutput:
    """The reading side of one pipe."""

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._hear = hear
        self.taken = 0
        """Bytes that were read from the pipe."""
        self._left: deque[bytes] = deque()
        self._behind: list[Callable[[], None]] = []

    def take(self, data: bytes, pipe: asyncio.ReadTransport) -> None:
        """Take bytes that were read from the pipe."""
        self.taken += len(data)
        if self._left:
            self._left.extend(portions(data))
            return
        pieces = portions(data)
        if len(pieces) > 1:
            self._left.extend(pieces[1:])
            pipe.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on, pipe)
        self._hear(pieces[0])

    @property
    def is_behind(self) -> bool:
        """Whether bytes wait to be passed on, and the pipe is not read."""
        return bool(self._left)

    def when_heard(self, then: Callable[[], None]) -> None:
        """Call `then` when everything that was read has been passed on; at once, if nothing is waiting."""
        if self._left:
            self._behind.append(then)
        else:
            then()

    def _go_on(self, pipe: asyncio.ReadTransport) -> None:
        portion = self._left.popleft()
        if self._left:
            asyncio.get_running_loop().call_soon(self._go_on, pipe)
        elif not pipe.is_closing():
            pipe.resume_reading()
        self._hear(portion)
        if not self._left:
            behind, self._behind = self._behind, []
            for then in behind:
                then()


_EXIT_GRACE: Final = 2.0
"""Seconds a child gets to exit after its stdin was closed, and again after TERM."""
_LAST_WORDS: Final = 0.5
"""Seconds to wait, when the process or its input or output has ended, for the rest to end too."""
_PIPE: Final = 1 << 20
"""The most bytes that a pipe holds: what comes after so many was not written by a process that had exited before."""
_TURNS: Final = 2
"""After so many, the loop has read what was in the pipe: when it was held up, it runs timers before it reads."""
_POLL: Final = 0.01
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def child_environment(config: UpstreamConfig, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The whole environment of a child: what it inherits, the nesting depth, and what is configured."""
    depth = {DEPTH_VARIABLE: str(nesting_depth(outer) + 1)}
    return {**inherited(config.inherit_env, outer), **depth, **config.env}


class Child(asyncio.SubprocessProtocol):
    """One process and its three pipes."""

    def __init__(
        self,
        on_output: Callable[[bytes], None],
        on_end: Callable[[str], None],
        log: FilteringBoundLogger,
        server_log: ServerLog,
    ) -> None:
        """`on_end` is called once, with the cause, when the process has exited or closed its input or output."""
        self.room = asyncio.Event()
        """Clear while the process does not read what was written to it; set for good when it has ended."""
        self.room.set()
        self.full = False
        """Whether `room` is clear; cheap enough to check for every call."""
        self.exited = asyncio.Event()
        self._outputs = {_STDOUT: PipeOutput(on_output), _STDERR: PipeOutput(server_log.stderr)}
        self._on_end = on_end
        self._log = log
        self._server_log = server_log
        self._ended = False
        self._gone = asyncio.Event()
        self._unsent = GatheredBytes(self._send)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the process, which runs now."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        pipe_of = self._transport.get_pipe_transport
        self._stdin = cast("asyncio.WriteTransport", pipe_of(_STDIN))
        self._pipes = {fd: cast("asyncio.ReadTransport", pipe_of(fd)) for fd in self._outputs}
        self.pid = self._transport.get_pid()

    def write(self, data: bytes) -> None:
        """Write these bytes, whether or not there is `room`. After the end they are dropped."""
        self._unsent.add(data)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on output or standard error."""
        self._outputs[fd].take(data, self._pipes[fd])

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """End the conversation soon: without stdin or stdout there is none, even if the process is alive."""
        if fd in (_STDIN, _STDOUT):
            self._end_soon()

    def process_exited(self) -> None:
        """End the conversation soon: the last output may still be in the pipe, or a grandchild may hold it open."""
        self.exited.set()
        self._end_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the process and all its pipes are closed."""
        self._gone.set()

    def pause_writing(self) -> None:
        """Note that the process does not read."""
        self.full = True
        self.room.clear()

    def resume_writing(self) -> None:
        """Note that the process reads again."""
        self.full = False
        self.room.set()

    def end_conversation(self, cause: str) -> None:
        """Call `on_end`, unless it was called before."""
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
        # Bytes that it has not read by now would keep its stdin open.
        if self._stdin.get_write_buffer_size():
            self._stdin.abort()
        else:
            self._stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await self._has_exited():
                break
            self._log.debug("upstream process did not exit", pid=self.pid, signal=number.name)
            self._signal_group(number)
        if await self._has_exited():
            await self._end_orphans()
        else:
            self._log.warning("upstream process is still running after SIGKILL", pid=self.pid)
        self._transport.close()
        with anyio.move_on_after(_EXIT_GRACE):
            await self._gone.wait()
        self._server_log.close()

    def _stdout_is_over(self) -> bool:
        stdout = self._transport.get_pipe_transport(_STDOUT)
        return stdout is None or stdout.is_closing()

    def _end_soon(self) -> None:
        stdout = self._outputs[_STDOUT]
        # That its stdin is lost along with the process says nothing about what is still in its stdout.
        if self.exited.is_set() and self._stdout_is_over():
            # What was read in the same turn of the loop is passed on after this call.
            asyncio.get_running_loop().call_soon(stdout.when_heard, self._end_now)
        elif not self._ended:
            asyncio.get_running_loop().call_later(_LAST_WORDS, self._end_late, stdout.taken, stdout.taken + _PIPE)

    def _end_late(self, taken: int, bound: int, turns: int = 0) -> None:
        """End the conversation, unless output of a process that has exited is still arriving.

        Args:
            taken: bytes of output when this was last looked at.
            bound: bytes of output after which it is ended all the same.
            turns: of the loop, since the time was up.
        """
        stdout, loop = self._outputs[_STDOUT], asyncio.get_running_loop()
        if turns < _TURNS:
            loop.call_soon(self._end_late, taken, bound, turns + 1)
        elif self.exited.is_set() and (stdout.is_behind or taken < stdout.taken < bound) and not self._ended:
            loop.call_later(_LAST_WORDS, self._end_late, stdout.taken, bound)
        else:
            stdout.when_heard(self._end_now)

    def _end_now(self) -> None:
        self.end_conversation(self._describe())

    def _describe(self) -> str:
        code = self._transport.get_returncode()
        if code is None:
            return "its process closed its input or output"
        return f"its process ended (signal {-code})" if code < 0 else f"its process ended (exit code {code})"

    async def _end_orphans(self) -> None:
        """End what the process started and left behind in its group: TERM, wait, KILL.

        The group's number is not reused while any process in it is alive.
        """
        with anyio.move_on_after(_EXIT_GRACE):
            number = signal.SIGTERM
            while self._signal_group(number):
                number = 0
                await anyio.sleep(_POLL)
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: int) -> bool:
        """Signal the process's group. Return whether there was a process to signal; signal 0 only checks."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def _has_exited(self) -> bool:
        """Whether the process exits within the grace period."""
        with anyio.move_on_after(_EXIT_GRACE):
            await self.exited.wait()
        return self.exited.is_set()


@asynccontextmanager
async def run_child(config: UpstreamConfig, child: Child, watchdog: Watchdog | None = None) -> AsyncGenerator[None]:
    """Run the upstream's command as `child`. Leaving the context ends the process, whatever it does.

    `watchdog` ends it if the gateway itself can't.

    Raises:
        OSError: the program can't be started.
    """
    command, env = config.command or "", child_environment(config)
    if "/" not in command:
        command = find_program(command, env.get("PATH", os.defpath)) or command
    # Shielded because asyncio, if cancelled here, would leave open the pipes that it has not connected yet.
    with anyio.CancelScope(shield=True):
        await asyncio.get_running_loop().subprocess_exec(
            lambda: child,
            command,
            *config.args,
            env=env,
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
