"""The two listening sockets of a gateway: bound here, or passed on by its starter (systemd's socket activation).

Turns an address of the settings into a bound socket. A socket that was passed on is told by its name: `faces` or
`admin` (FileDescriptorName= of the unit). It knows no route and no server; `app/process.py` serves on what comes out.
The protocol: sd_listen_fds(3), environment variables LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES.
"""

import os
import socket
from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Final

from gateway.config.address import is_loopback
from gateway.errors import ConfigError

_FIRST_FD: Final = 3
_BACKLOG: Final = 2048


def take_passed_sockets(environ: MutableMapping[str, str], pid: int) -> dict[str, int]:
    """The file descriptors that were passed to the process `pid`, by name; none where the variables are another's.

    No child inherits them or the variables: both are ours, and are taken once.
    """
    owner, count, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if owner != str(pid) or not count.isdecimal():
        return {}
    numbers = range(_FIRST_FD, _FIRST_FD + int(count))
    for number in numbers:
        # A number that is open nowhere is refused where it is used.
        with suppress(OSError):
            os.set_inheritable(number, False)
    return dict(zip(names.split(":"), numbers, strict=False))


@contextmanager
def listening(name: str, host: str, port: int, passed: Mapping[str, int]) -> Generator[socket.socket]:
    """The socket that was passed on as `name`, else one bound to this address; closed with the context.

    Raises `ConfigError` when the address is taken or not ours, or when a passed socket is open to other machines and
    `host` says that this gateway is not (no token would be asked).
    """
    number = passed.get(name)
    with _bound(name, host, port) if number is None else _passed(name, host, number) as listener:
        yield listener


def url_of_socket(host: str, listener: socket.socket) -> str:
    """Where a listener is reached: the setting may have said port 0, any free one, or the socket was passed on."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _passed(name: str, host: str, number: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=number)
    except OSError as error:
        raise ConfigError(
            f"the socket {name!r} that was passed on can't be used (descriptor {number}: {error.strerror})"
        ) from None
    if listener.family not in (socket.AF_INET, socket.AF_INET6) or listener.type != socket.SOCK_STREAM:
        listener.close()
        raise ConfigError(
            f"the socket {name!r} that was passed on is not a TCP socket: ListenStream= takes HOST:PORT here"
        )
    address = str(listener.getsockname()[0])
    if is_loopback(host) and not is_loopback(address):
        listener.close()
        raise ConfigError(
            f"the socket {name!r} that was passed on listens on {address}, and the settings say {host}: set "
            f"{'serve.host' if name == 'faces' else 'serve.admin_host'} to {address!r}, or ListenStream= to {host}"
        )
    return listener


def _bound(name: str, host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        flag = "--port" if name == "faces" else "--admin-port"
        raise ConfigError(
            f"can't listen on {host}:{port} ({os.strerror(error.errno or 0)}); "
            f"stop what listens there or choose another with {flag}"
        ) from error
