"""The two listening sockets of a gateway: bound here, or passed by what started it (systemd's socket activation).

Turns an address from the settings into a bound socket. A passed socket is identified by its name, `faces` or `admin`
(FileDescriptorName= of the unit). It knows no route and no server; `app/process.py` serves on the sockets. The
protocol: sd_listen_fds(3), environment variables LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES.
"""

import errno
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
