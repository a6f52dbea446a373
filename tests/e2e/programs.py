"""The project's programs as files that can be typed or named in a configuration, each forked from a process that has
loaded its code.

A file hands its arguments, folder, environment and the three streams to that process, passes signals on, and ends as
the program does. `test_tutorial.py` and the tests of the start itself run the installed programs.
"""

import functools
import importlib
import marshal
import multiprocessing
import os
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from tests.e2e.forked import LOADED

PROGRAMS: Final = ("codec-gateway", "codec-plain-time", "codec-time-leaf")
_LATER: Final = ("codec_bench.command", "codec_console.command", "typer.rich_utils", "rich.console", "httpx2")
"""What single commands load."""
_CLIENT: Final = """#!{python} -SEI
import os, sys, _signal, _socket, marshal, struct

ADDRESS, NAME = {address!r}, {name!r}
asked = marshal.dumps((NAME, sys.argv, os.getcwdb(), dict(os.environb)))
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect(ADDRESS)
server.sendmsg([struct.pack("=I", len(asked))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("=3i", 0, 1, 2))])
server.sendall(asked)
pid = struct.unpack("=i", server.recv(4))[0]
for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2):
    if _signal.getsignal(number) != _signal.SIG_IGN:
        _signal.signal(number, lambda number, _: os.kill(pid, number))
status = struct.unpack("=i", server.recv(4))[0]
if status < 0:
    _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""
"""What is typed. It imports next to nothing: that is all that a start costs."""


@functools.cache
def loaded_programs() -> Path:
    """A folder with `PROGRAMS`, which work until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="codec-programs-"))
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        LOADED.Process(target=_serve, args=(listener, folder), daemon=True).start()
    for name in PROGRAMS:
        path = folder / name
        path.write_text(_CLIENT.format(python=sys.executable, address=address, name=name))
        path.chmod(0o755)
    return folder


def _serve(listener: socket.socket, folder: Path) -> None:
    own, tests = os.getpid(), multiprocessing.parent_process()
    assert tests is not None
    for module in _LATER:
        importlib.import_module(module)
    programs = {each.name: each.load() for each in entry_points(group="console_scripts") if each.name in PROGRAMS}
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGCHLD, _reap)
    try:
        while tests.sentinel not in select.select([listener, tests.sentinel], [], [])[0]:
            asked, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _watch(asked, programs)
                return
            asked.close()
    finally:
        if os.getpid() == own:
            shutil.rmtree(folder)


def _leave(*_: object) -> None:
    sys.exit()


def _reap(*_: object) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _watch(asked: socket.socket, programs: dict[str, Callable[[], Any]]) -> None:
    """Run a program in a process of its own, say how it ends, and end it with whoever asked."""
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    size, streams, _, _ = socket.recv_fds(asked, 4, 3)
    with asked.makefile("rb") as rest:
        name, words, folder, environment = marshal.loads(rest.read(struct.unpack("=I", size)[0]))
    if (pid := os.fork()) == 0:
        asked.close()
        _become(words, folder, environment, streams)
        sys.exit(programs[name]())
    for each in streams:
        os.close(each)
    asked.sendall(struct.pack("=i", pid))
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, asked], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # Whoever asked may be gone.
    with suppress(OSError):
        asked.sendall(struct.pack("=i", status))


def _become(words: list[str], folder: bytes, environment: dict[bytes, bytes], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    sys.argv = words
    sys.path[:] = [each for each in sys.path if each]
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
