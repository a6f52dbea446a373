"""Listening sockets: bound by us, or passed on as systemd passes them."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.errors import ConfigError
from gateway.serve.http.http_server import listening, take_passed_sockets, url_of_socket

SHOW = """
import os, sys
from gateway.errors import ConfigError
from gateway.serve.http.http_server import listening, take_passed_sockets
passed = take_passed_sockets(os.environ, os.getpid())
try:
    with listening(sys.argv[1], sys.argv[2], 0, passed) as listener:
        kept = any(map(os.get_inheritable, passed.values())) or any(name.startswith('LISTEN_') for name in os.environ)
        print('inherited' if kept else listener.getsockname()[1])
except ConfigError as error:
    print(error.message)
"""
ACTIVATE = "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.executable, sys.argv[1:])"


@pytest.fixture
def listeners() -> Iterator[tuple[socket.socket, socket.socket]]:
    """One socket of this machine alone, one that is open to others."""
    with socket.create_server(("127.0.0.1", 0)) as local, socket.create_server(("0.0.0.0", 0)) as public:
        yield local, public


def activated(name: str, host: str, *sockets: socket.socket, names: str = "faces:admin") -> str:
    """What `listening` comes to in a process that was given these sockets from file descriptor 3 on."""
    shuffle = "import os, sys\n" + "".join(f"os.dup2({sock.fileno()}, {200 + i})\n" for i, sock in enumerate(sockets))
    shuffle += "".join(f"os.dup2({200 + i}, {3 + i})\n" for i in range(len(sockets))) + ACTIVATE
    numbers = [sock.fileno() for sock in sockets]
    command = [sys.executable, "-c", shuffle, sys.executable, "-c", SHOW, name, host]
    environment = {**os.environ, "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names}
    done = subprocess.run(
        command, env=environment, pass_fds=numbers, capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


def test_socket_that_was_passed_on_is_found_by_its_name(listeners: tuple[socket.socket, socket.socket]) -> None:
    local, _ = listeners
    with socket.create_server(("127.0.0.1", 0)) as second:
        ports = [str(each.getsockname()[1]) for each in (local, second)]

        assert activated("faces", "127.0.0.1", local, second) == ports[0]
        assert activated("admin", "127.0.0.1", local, second) == ports[1]


def test_descriptor_that_is_not_open_is_refused_by_its_name() -> None:
    with socket.socket() as closed:
        number = closed.fileno()

    wanted = f"inherited socket 'faces' can't be used .descriptor {number}: Bad file descriptor"
    with pytest.raises(ConfigError, match=wanted), listening("faces", "127.0.0.1", 0, {"faces": number}):
        pass


def test_name_that_was_not_passed_on_is_bound(listeners: tuple[socket.socket, socket.socket]) -> None:
    local, _ = listeners

    assert activated("admin", "127.0.0.1", local, names="faces") not in {"", str(local.getsockname()[1])}


def test_public_socket_is_refused_where_the_settings_say_loopback(
    listeners: tuple[socket.socket, socket.socket],
) -> None:
    _, public = listeners

    assert "set serve.host to '0.0.0.0'" in activated("faces", "127.0.0.1", public)
    assert activated("faces", "0.0.0.0", public) == str(public.getsockname()[1])


def test_socket_that_is_no_tcp_socket_is_refused() -> None:
    with socket.socket(socket.AF_UNIX) as other:
        assert "is not a TCP socket" in activated("faces", "127.0.0.1", other)


@pytest.mark.parametrize(
    "environ", [{}, {"LISTEN_PID": "8", "LISTEN_FDS": "1"}, {"LISTEN_PID": "7", "LISTEN_FDS": "one"}]
)
def test_variables_of_another_process_or_without_a_number_pass_nothing(environ: dict[str, str]) -> None:
    assert take_passed_sockets({"LISTEN_FDNAMES": "faces", **environ}, 7) == {}


def test_more_names_than_sockets_are_left_out() -> None:
    environ = {"LISTEN_PID": "7", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "faces:admin"}

    assert take_passed_sockets(environ, 7) == {"faces": 3}
    assert environ == {}


@pytest.mark.parametrize(("name", "flag"), [("faces", "--port"), ("admin", "--admin-port")])
def test_taken_port_names_the_flag_that_changes_it(
    name: str, flag: str, listeners: tuple[socket.socket, socket.socket]
) -> None:
    port = listeners[0].getsockname()[1]

    wanted = f"can't listen on 127.0.0.1:{port} .*choose another with {flag}$"
    with pytest.raises(ConfigError, match=wanted), listening(name, "127.0.0.1", port, {}):
        pass


def test_socket_is_closed_with_the_context() -> None:
    with listening("faces", "127.0.0.1", 0, {}) as listener:
        assert url_of_socket("127.0.0.1", listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert url_of_socket("::1", listener).startswith("http://[::1]:")

    assert listener.fileno() == -1


@pytest.mark.parametrize("host", ["a b", "no.such.host.invalid", "a..b", "192.0.2.7"])
def test_host_that_is_no_address_is_named_with_its_setting(host: str) -> None:
    wanted = r"is no address of this machine: set serve\.host \(--host\)"
    with pytest.raises(ConfigError, match=wanted), listening("faces", host, 0, {}):
        pass
