"""Where workers find each other and their parent."""

import socket
from contextlib import nullcontext
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.workers.handover import admin_socket, socket_folder
from gateway.workers.worker_restarts import LoopbackPorts


def reached(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=20).close()
    except ConnectionRefusedError:
        return False
    return True


def test_worker_that_is_away_is_refused_at_once_and_comes_back_at_its_address() -> None:
    with LoopbackPorts(2) as ports:
        first, second = ports.addresses
        seen = [reached(first)]
        for _ in range(2):
            with ports.socket_of(0) as listener:
                listener.listen()
                seen += [reached(first), reached(second)]
            seen.append(reached(first))
        assert ports.addresses == (first, second)

    assert first != second
    assert seen == [False, True, False, False, True, False, False]


def test_port_of_a_worker_that_is_away_is_nobody_elses() -> None:
    with LoopbackPorts(1) as ports:
        port = int(ports.addresses[0].rpartition(":")[2])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


def test_folder_is_its_owners_alone_and_goes_with_what_is_in_it() -> None:
    with socket_folder() as folder:
        mode = folder.stat().st_mode & 0o777
        admin_socket(folder, 0).write_text("")

    assert mode == 0o700
    assert not folder.exists()


def test_folder_whose_sockets_would_have_no_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))

    with pytest.raises(ConfigError, match="set TMPDIR"), socket_folder():
        pass

    assert list(deep.iterdir()) == []


@pytest.mark.parametrize(("length", "refused"), [(80, False), (81, True)])
def test_path_leaves_room_for_the_names_of_sockets(monkeypatch: pytest.MonkeyPatch, length: int, refused: bool) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: f"/nowhere/{prefix}".ljust(length, "x"))

    with pytest.raises(ConfigError) if refused else nullcontext(), socket_folder():
        pass


def test_folder_that_can_not_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))

    with pytest.raises(ConfigError, match="set TMPDIR"), socket_folder():
        pass
