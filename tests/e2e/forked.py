"""Commands of the gateway that are forked from a process which has loaded the code: a start without its imports.

They are nine tenths of what a start costs, and the suite starts hundreds. Tests of the start itself, of what it loads,
of descriptors and of standard input run `python -m gateway`.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Final, Self

from gateway.cli.app import main

LOADED: Final = multiprocessing.get_context("forkserver")
LOADED.set_forkserver_preload(["gateway.cli.app", "gateway.cli.serve", "gateway.app.process"])


def _forked(words: Sequence[str], folder: Path, env: Mapping[str, str], *outputs: int | None) -> BaseProcess:
    """`codec-gateway` with these words; `outputs`: descriptors of its stdout and stderr, None for our own."""
    streams = [None if each is None else DupFd(each) for each in outputs]
    process = LOADED.Process(target=_run, args=(list(words), folder, dict(env), streams))
    process.start()
    return process


def _run(words: list[str], folder: Path, env: dict[str, str], streams: list[Any]) -> None:
    for number, stream in enumerate(streams, 1):
        if stream is not None:
            os.dup2(stream.detach(), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["codec-gateway", *words]
    main()


def run_forked(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises `subprocess.TimeoutExpired` after four minutes."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = _forked(words, folder, env, out.fileno(), err.fileno())
        process.join(240)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(list(words), 240)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(words), process.exitcode, out.read().decode(), err.read().decode())


class ForkedGateway:
    """A command that runs; like `subprocess.Popen` as far as tests need it."""

    def __init__(self, words: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        reader, writer = os.pipe()
        self.stderr: IO[bytes] = os.fdopen(reader, "rb", buffering=0)
        self._process = _forked(words, folder, env, None, writer)
        os.close(writer)
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self.stderr.close()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; minus a signal's number if that ended it. Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("codec-gateway", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
