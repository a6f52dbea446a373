"""A worker's start that fails, and what is left of it."""

import errno
import socket
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.app.options import ServeOptions
from gateway.errors import GatewayError
from gateway.workers.minder import LoopbackPorts, WorkerPlan, started

pytestmark = pytest.mark.anyio


class NoRoom(LoopbackPorts):
    """Ports of a process that may open no more files."""

    def socket_of(self, number: int) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")


async def test_start_without_room_for_its_sockets_leaves_none_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pairs: list[socket.socket] = []
    real = socket.socketpair

    def pair(*args: Any, **named: Any) -> tuple[socket.socket, socket.socket]:
        pairs.extend(both := real(*args, **named))
        return both

    with NoRoom(1) as ports, socket.socket() as listener:
        plan = WorkerPlan(ServeOptions(None, {}, None, "info"), 1, tmp_path, listener, ports.addresses, ports, b"k")
        monkeypatch.setattr("socket.socketpair", pair)
        with pytest.raises(GatewayError, match="Too many open files"):
            async with started(plan, 0):
                pass

    with anyio.fail_after(10):
        while any(each.fileno() >= 0 for each in pairs):
            await anyio.lowlevel.checkpoint()
    assert len(pairs) == 2
