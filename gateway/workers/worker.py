"""One worker: `python -m gateway.workers.worker HANDED`, started only by its parent.

It is an ordinary gateway process on sockets that it was handed, and one of several replicas. It drains when its parent
tells it to, or when its parent ends.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from gateway.app.process import run_gateway
from gateway.app.role import Listeners, Shutdown
from gateway.config.gateway_config import GatewayConfig, ServeConfig
from gateway.config.replicas import ReplicasConfig
from gateway.config.show import secrets_of
from gateway.errors import ConfigError, GatewayError, first_of_ours
from gateway.observe.logs import configure_logging, get_logger
from gateway.serve.http.http_server import listening
from gateway.workers.embedded_engines import check_engines, with_hosted_engines
from gateway.workers.handover import ORDERS, READY, Handed, admin_socket, failure_line

_FAILED: Final = 1

log = get_logger("worker")


class WorkerRole:
    """A worker's role: it listens on its parent's sockets and follows its parent's orders."""

    def __init__(self, handed: Handed) -> None:
        """Take over what was handed, and keep processes that the worker starts from inheriting it."""
        for each in handed.descriptors.open:
            os.set_inheritable(each, False)
        self._handed = handed
        self._parent = socket.socket(fileno=handed.descriptors.parent)
        self._orphaned = False

    def read(self) -> GatewayConfig:
        """Read the current settings of this worker. Raises `ConfigError`."""
        settings = self._handed.options.read()
        worker = self._handed.worker
        check_engines(settings, worker.count)
        settings = with_hosted_engines(settings, worker)
        return replace(settings, worker=worker, replicas=self._replicas(settings.replicas))

    @contextmanager
    def listening(self, serve: ServeConfig) -> Generator[Listeners]:
        """Listen on the sockets of all workers, and on one for the parent's questions."""
        held = self._handed.descriptors
        path = admin_socket(self._handed.worker.folder, self._handed.worker.number)
        path.unlink(missing_ok=True)
        replicas = None if held.replicas is None else socket.socket(fileno=held.replicas)
        with (
            listening("faces", serve.host, serve.port, {"faces": held.faces}) as faces,
            socket.socket(socket.AF_UNIX) as admin,
        ):
            admin.bind(str(path))
            try:
                yield Listeners(faces, admin, replicas)
            finally:
                self._clear(path)

    def ready(self) -> None:
        """Tell the parent that this worker takes requests."""
        self.tell(READY)

    def tell(self, line: bytes) -> None:
        """Say something to the parent, if it is still there."""
        with suppress(OSError):
            self._parent.sendall(line)

    async def follow(self, shutdown: Shutdown) -> None:
        """Do what the parent orders. If the parent ends, drain."""
        orders = {"drain": shutdown.stop, "end": shutdown.end, "reload": shutdown.reload}
        reader, writer = await asyncio.open_connection(sock=self._parent.dup())
        with closing(writer):
            while (line := await reader.readline()) in ORDERS:
                orders[ORDERS[line]]()
        self._orphaned = True
        log.warning("the parent has ended: this worker ends too")
        shutdown.stop()

    def _clear(self, path: Path) -> None:
        """Remove the files that the parent can't remove any more."""
        path.unlink(missing_ok=True)
        if not self._orphaned:
            return
        # Only the last worker can remove the directory: until then the sockets of others are in it.
        with suppress(OSError):
            for each in path.parent.iterdir():
                if not each.match("admin-*"):
                    each.unlink()
            path.parent.rmdir()

    def _replicas(self, settings: ReplicasConfig) -> ReplicasConfig:
        worker, key = self._handed.worker, self._handed.descriptors.key
        address = worker.peers[worker.number]
        if key is not None:
            host, _, port = address.rpartition(":")
            return ReplicasConfig(host, int(port), key_file=Path(f"/proc/self/fd/{key}"))
        own = replace(settings, port=settings.port + worker.number)
        if own.named != address:
            raise ConfigError("replicas.address or replicas.port was changed: restart the gateway")
        return own


def main(argument: str) -> int:
    """Serve until told to end; returns the exit code."""
    handed = Handed.from_argument(argument)
    role = WorkerRole(handed)
    try:
        _serve(role, handed)
    except KeyboardInterrupt:
        return _FAILED
    except BaseExceptionGroup as group:
        return _report(role, first_of_ours(group))
    except GatewayError as error:
        return _report(role, error)
    return 0


def _serve(role: WorkerRole, handed: Handed) -> None:
    level, number = handed.options.log_level, handed.worker.number
    configure_logging(level=level, worker=number)
    settings = role.read()
    configure_logging(level=level, worker=number, secrets=secrets_of(settings))
    anyio.run(run_gateway, settings, role.read, role, backend_options={"use_uvloop": True})


def _report(role: WorkerRole, error: GatewayError) -> int:
    role.tell(failure_line(error))
    return _FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
