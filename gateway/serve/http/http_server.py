"""A uvicorn server with the gateway's own connections, its two listening sockets, and its limit of open files."""

import errno
import os
import resource
import socket
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import uvicorn
from starlette.types import ASGIApp

from gateway.config.address import is_loopback
from gateway.errors import ConfigError
from gateway.observe.logs import get_logger
from gateway.serve.http.client_connection import HttpProtocol
from gateway.serve.http.connection_limits import ClientConnections

# The part of the open files that clients may not use is kept for the admin port, servers' processes, the engine and
# logs, so that these go on working when strangers have opened as many connections as they can.

_RESERVE: Final = 512

log = get_logger("serve")


@dataclass(frozen=True, slots=True)
class FileLimit:
    """The limit of open files, and the part that clients may not use."""

    files: int
    reserve: int

    @property
    def for_clients(self) -> int:
        """File descriptors from this number on are not for clients (the kernel hands out the lowest free one)."""
        return self.files - self.reserve


def raise_file_limit(connections: int) -> FileLimit:
    """Raise the limit of this process as far as allowed. `connections`: how many clients are configured to have."""
    soft, hard = raise_soft_limit()
    limit = file_limit(hard)
    if soft != hard:
        log.info("limit of open files raised", limit=limit.files, raised_from=soft, reserved=limit.reserve)
    if limit.for_clients < connections:
        log.warning(
            "the limit of open files allows fewer connections than serve.connections.total: raise it (ulimit -n, "
            "LimitNOFILE=), or lower the setting",
            limit=limit.files,
            connections=limit.for_clients,
            total=connections,
        )
    return limit


def raise_soft_limit() -> tuple[int, int]:
    """Raise the soft limit of open files to the hard one. Returns the old limit and the new one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def file_limit(files: int) -> FileLimit:
    """Split a limit of `files` open files: a quarter is kept from clients, but no more than `_RESERVE`."""
    return FileLimit(files, min(_RESERVE, files // 4))


# Sockets are bound here, or passed by what started the gateway (systemd's socket activation). A passed socket is
# identified by its name, `faces` or `admin` (FileDescriptorName= of the unit). The protocol: sd_listen_fds(3),
# environment variables LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES.

_FIRST_FD: Final = 3
_BACKLOG: Final = 2048


def take_passed_sockets(environ: MutableMapping[str, str], pid: int) -> dict[str, int]:
    """The file descriptors that were passed to the process `pid`, by name; empty if they are for another process.

    Removes the variables from `environ`, and keeps children from inheriting the descriptors: they are taken once.
    """
    owner, count, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if owner != str(pid) or not count.isdecimal():
        return {}
    numbers = range(_FIRST_FD, _FIRST_FD + int(count))
    for number in numbers:
        # A descriptor that is not open is refused later, when it is used.
        with suppress(OSError):
            os.set_inheritable(number, False)
    return dict(zip(names.split(":"), numbers, strict=False))


@contextmanager
def listening(name: str, host: str, port: int, passed: Mapping[str, int]) -> Generator[socket.socket]:
    """The socket that was passed as `name`, else one bound to this address. It is closed with the context.

    Raises `ConfigError` if the address is taken or not this machine's, or if a passed socket is open to other machines
    while `host` says that this gateway is not (callers would need no token).
    """
    number = passed.get(name)
    with _bound(name, host, port) if number is None else _passed(name, host, number) as listener:
        yield listener


def url_of_socket(host: str, listener: socket.socket) -> str:
    """The address at which a listener is reached: the configured port may be 0 (any free one), or the socket passed."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _passed(name: str, host: str, number: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=number)
    except OSError as error:
        raise ConfigError(
            f"the inherited socket {name!r} can't be used (descriptor {number}: {error.strerror})"
        ) from None
    if listener.family not in (socket.AF_INET, socket.AF_INET6) or listener.type != socket.SOCK_STREAM:
        listener.close()
        raise ConfigError(f"the inherited socket {name!r} is not a TCP socket: set ListenStream= to HOST:PORT")
    address = str(listener.getsockname()[0])
    if is_loopback(host) and not is_loopback(address):
        listener.close()
        raise ConfigError(
            f"the inherited socket {name!r} listens on {address}, but the settings say {host}: set "
            f"{'serve.host' if name == 'faces' else 'serve.admin_host'} to {address!r}, or ListenStream= to {host}"
        )
    return listener


def _bound(name: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None) or 0
        # Below zero: the name was not found. A name that can't be looked up is a UnicodeError.
        if isinstance(error, UnicodeError) or number < 0 or number == errno.EADDRNOTAVAIL:
            key, flag = ("host", " (--host)") if name == "faces" else ("admin_host", "")
            raise ConfigError(
                f"{host!r} is no address of this machine: set serve.{key}{flag} to one, such as 127.0.0.1"
            ) from error
        flag = "--port" if name == "faces" else "--admin-port"
        raise ConfigError(
            f"can't listen on {host}:{port} ({os.strerror(number)}); "
            f"stop what listens there or choose another with {flag}"
        ) from error


class HttpServer(uvicorn.Server):
    """A uvicorn server that leaves signals to `app/role.py`: a process has two servers, but stops once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.servers = []

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield

    def send_clients_away(self) -> None:
        """Accept no more connections, and close each open one as soon as nothing runs on it."""
        for each in self.servers:
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()


def http_server(app: ASGIApp, connections: ClientConnections) -> HttpServer:
    """The server of an application; `connections` bounds its clients' connections."""
    settings = uvicorn.Config(
        app,
        interface="asgi3",
        loop="none",
        http=cast("Any", partial(HttpProtocol, connections=connections)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    return HttpServer(settings)
