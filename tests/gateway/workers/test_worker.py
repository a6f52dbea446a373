"""One worker's part: what it takes over from its parent, whose orders it follows, and what it leaves behind."""

import os
import runpy
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.app.options import ServeOptions
from gateway.app.role import Shutdown
from gateway.config.gateway_config import ServeConfig
from gateway.config.replicas import WorkerConfig
from gateway.errors import ConfigError, GatewayError
from gateway.workers import worker
from gateway.workers.handover import Descriptors, Handed, admin_socket, failure_line, order_line
from gateway.workers.worker import WorkerRole, main

PEERS = ("127.0.0.1:7001", "127.0.0.1:7002")


class Parent:
    """The parent's side: its end of the socket between the two, and what it has opened for the worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.link, theirs = socket.socketpair()
        self.link.settimeout(20)
        self.faces = socket.create_server(("127.0.0.1", 0))
        self.replicas = socket.socket()
        self.key, write = os.pipe()
        os.write(write, b"k" * 64)
        os.close(write)
        self._theirs = theirs.detach()

    def handed(self, options: ServeOptions | None = None, *, alone: bool = False) -> Handed:
        """What the second of two workers gets. `alone`: the settings say where it is reached."""
        descriptors = Descriptors(
            self._theirs,
            os.dup(self.faces.fileno()),
            None if alone else os.dup(self.replicas.fileno()),
            None if alone else self.key,
        )
        for each in descriptors.open:
            os.set_inheritable(each, True)
        return Handed(
            WorkerConfig(1, 2, self.folder, PEERS),
            options or ServeOptions(None, {"tokens.map": None}, None, "info"),
            descriptors,
        )

    def close(self) -> None:
        for each in (self.link, self.faces, self.replicas):
            each.close()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    folder = tmp_path / "sockets"
    folder.mkdir()
    made = Parent(folder)
    yield made
    made.close()


@pytest.fixture
def role_of(parent: Parent) -> Iterator[Callable[..., WorkerRole]]:
    """Makes the worker's role; closes what it has taken over."""
    roles: list[tuple[WorkerRole, Handed]] = []

    def make(*given: Any, **named: Any) -> WorkerRole:
        handed = parent.handed(*given, **named)
        roles.append((WorkerRole(handed), handed))
        return roles[-1][0]

    yield make
    for role, handed in roles:
        role._parent.close()  # pyright: ignore[reportPrivateUsage]
        for each in handed.descriptors.open[1:]:
            # Some are closed with what was opened on them.
            with suppress(OSError):
                os.close(each)


def test_nothing_that_was_handed_over_is_inherited_by_servers(parent: Parent) -> None:
    handed = parent.handed()
    WorkerRole(handed)._parent.close()  # pyright: ignore[reportPrivateUsage]

    assert [os.get_inheritable(each) for each in handed.descriptors.open[1:]] == [False] * 3
    for each in handed.descriptors.open[1:]:
        os.close(each)


def test_worker_is_one_of_several_replicas_with_the_key_of_its_parent(
    parent: Parent, role_of: Callable[..., WorkerRole]
) -> None:
    settings = role_of().read()

    assert (settings.worker and settings.worker.number, settings.replicas.named) == (1, "127.0.0.1:7002")
    assert settings.replicas.read_secrets() == [sha256(b"k" * 64).digest()]


def test_settings_that_name_the_replicas_are_followed_while_they_stay(
    tmp_path: Path, role_of: Callable[..., WorkerRole]
) -> None:
    key, file = tmp_path / "key", tmp_path / "codec-gateway.toml"
    key.write_text("k" * 64)
    key.chmod(0o600)
    file.write_text(f'[replicas]\naddress = "127.0.0.1"\nport = 7001\nkey_file = "{key}"\n')
    role = role_of(ServeOptions(file, {}, None, "info"), alone=True)

    assert role.read().replicas.named == "127.0.0.1:7002"
    file.write_text(f'[replicas]\naddress = "127.0.0.1"\nport = 7003\nkey_file = "{key}"\n')
    with pytest.raises(ConfigError, match="restart the gateway"):
        role.read()


def test_engine_that_workers_can_not_share_is_refused(role_of: Callable[..., WorkerRole]) -> None:
    flags = {"engine.kind": "url", "engine.url": "http://there", "engine.exclusive": True}

    with pytest.raises(ConfigError, match="exclusive"):
        role_of(ServeOptions(None, flags, None, "info")).read()


def test_worker_listens_where_all_do_and_for_its_parent_alone(
    parent: Parent, role_of: Callable[..., WorkerRole]
) -> None:
    path = admin_socket(parent.folder, 1)
    path.write_text("of the one before")
    with role_of().listening(ServeConfig()) as listeners:
        listeners.admin.listen()
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(str(path))
        same = listeners.faces.getsockname() == parent.faces.getsockname()
        (parent.folder / "engines.json").write_text("{}")
        assert listeners.replicas is not None
        listeners.replicas.close()

    assert same
    assert [each.name for each in parent.folder.iterdir()] == ["engines.json"]
    assert listeners.admin.fileno() == -1


def test_worker_whose_settings_name_its_address_has_no_socket_for_the_others(
    role_of: Callable[..., WorkerRole],
) -> None:
    with role_of(alone=True).listening(ServeConfig()) as listeners:
        assert listeners.replicas is None


def test_parent_hears_what_a_worker_says_and_one_that_is_gone_is_not_missed(
    parent: Parent, role_of: Callable[..., WorkerRole]
) -> None:
    role = role_of()
    role.ready()
    assert parent.link.recv(100) == b"ready\n"
    parent.link.close()
    role.tell(b"nobody listens\n")


class Told(Shutdown):
    """Notes what the parent's orders do."""

    def __init__(self) -> None:
        super().__init__(anyio.CancelScope(), lambda: self.did.append("reload"))
        self.did: list[str] = []

    def stop(self) -> None:
        self.did.append("stop")

    def end(self) -> None:
        self.did.append("end")


@pytest.mark.anyio
@pytest.mark.parametrize("others", [True, False])
async def test_worker_follows_orders_and_stops_and_clears_away_when_its_parent_is_gone(
    parent: Parent, role_of: Callable[..., WorkerRole], caplog: pytest.LogCaptureFixture, others: bool
) -> None:
    told, role = Told(), role_of()
    parent.link.sendall(b"".join(map(order_line, ("reload", "drain", "end"))))
    parent.link.close()
    (parent.folder / "engines.json").write_text("{}")
    if others:
        admin_socket(parent.folder, 0).write_text("")
    with role.listening(ServeConfig()) as listeners:
        with anyio.fail_after(20):
            await role.follow(told)
        assert listeners.replicas is not None
        listeners.replicas.close()

    assert told.did == ["reload", "stop", "end", "stop"]
    assert "the parent has ended" in caplog.text
    # The last of them removes the directory.
    assert (others, parent.folder.exists()) in {(True, True), (False, False)}
    assert not others or [each.name for each in parent.folder.iterdir()] == ["admin-0.sock"]


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (None, 0, b""),
        (KeyboardInterrupt(), 1, b""),
        (ConfigError("port taken"), 1, failure_line(ConfigError("port taken"))),
        (ExceptionGroup("x", [GatewayError("gone")]), 1, failure_line(GatewayError("gone"))),
    ],
)
def test_way_a_worker_ends_is_told_to_its_parent(
    parent: Parent, monkeypatch: pytest.MonkeyPatch, raised: BaseException | None, code: int, said: bytes
) -> None:
    served: list[Any] = []

    async def serve(*given: Any) -> None:
        served.extend(given)
        if raised is not None:
            raise raised

    monkeypatch.setattr(worker, "run_gateway", serve)
    handed = parent.handed()
    assert main(handed.as_argument()) == code
    settings, reread, role = served
    role._parent.close()

    assert reread() == settings
    assert parent.link.recv(1000) == said
    for each in handed.descriptors.open[1:]:
        os.close(each)


def test_worker_is_started_by_the_name_of_its_module(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []

    async def serve(*given: Any) -> None:
        served.extend(given)

    monkeypatch.setattr("gateway.app.process.run_gateway", serve)
    monkeypatch.delitem(sys.modules, "gateway.workers.worker")
    handed = parent.handed()
    monkeypatch.setattr(sys, "argv", ["worker", handed.as_argument()])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("gateway.workers.worker", run_name="__main__")
    served[2]._parent.close()

    assert (ended.value.code, len(served)) == (0, 3)
    for each in handed.descriptors.open[1:]:
        os.close(each)
