"""What only a real server has: users who may do little, TLS, memory that is full. Collected by `make shared-check`."""

import subprocess
from pathlib import Path

import pytest

from bench.processes import free_port
from gateway.observe.metrics import Metrics
from gateway.shared import StoreBounds, StoreRecord
from tests.gateway.shared.conftest import asked, open_store, until_up
from tests.standins.stores import running_store

pytestmark = pytest.mark.anyio

SMALL = StoreBounds(3000, 3000, 60.0)
PAGE = (Path(__file__).parents[3] / "docs" / "scale.md").read_text(encoding="utf-8")


def told(*arguments: str) -> None:
    subprocess.run(arguments, check=True, capture_output=True, timeout=60)


async def test_user_with_the_rights_that_the_page_names_is_enough(tmp_path: Path) -> None:
    rights = PAGE.partition("**ACL**:")[2].split("`")[1].replace("codec-gateway:", "t:")
    (tmp_path / "users").write_text(f"user default off\nuser gw on >word {rights}\n")
    metrics = Metrics()
    with running_store("--aclfile", str(tmp_path / "users")) as store:
        async with open_store(f"redis://gw:word@127.0.0.1:{store.port}/0", metrics) as shared:
            answers = [await shared.take("rate", "ann", 1, 0.01), await shared.wait("rate", "ann", 1, 0.01)]
            await shared.keep("memory", "ann", StoreRecord("1", None, b"one", ("a",)), SMALL)
            await shared.keep("memory", "ann", StoreRecord("2", "1", bytes(900)), SMALL)
            await shared.keep("memory", "bob", StoreRecord("3", None, bytes(900)), SMALL)
            found = await shared.find_alias("memory", "ann", ["a"], SMALL)
            await shared.drop("memory", "ann", "1")
            stored = [
                await shared.newest("ann", "web", 1, b"one", 60.0),
                await shared.newest("ann", "web", 0, b"", 60.0),
            ]
            leased = await shared.acquire("ann", "web", 60.0)
            await shared.release("ann", "web")
            assert shared.status.up
        async with open_store(f"redis://gw:wrong@127.0.0.1:{store.port}/0", up=False) as refused:
            assert not refused.status.up
            assert "invalid username" in (refused.status.reason or "")
            assert await refused.take("rate", "ann", 1, 0.01) is None

    assert answers[0] == 0
    assert answers[1] is not None
    assert answers[1] > 90
    assert [each.value for each in found] == [b"one"]
    assert (stored, leased) == ([b"", b"one"], True)
    assert [asked(metrics, kind, "refused") for kind in ("limit", "memory", "sign-in")] == [0, 0, 0]


async def test_certificate_is_checked(tmp_path: Path) -> None:
    key, certificate = str(tmp_path / "key"), str(tmp_path / "cert")
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    told("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, *name)
    port = free_port()
    flags = ["--tls-port", str(port), "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no"]
    with running_store(*flags):
        trusted = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}"
        async with open_store(trusted) as shared:
            await until_up(shared)
            assert await shared.take("rate", "ann", 1, 0.01) == 0
        async with open_store(f"rediss://127.0.0.1:{port}/0", up=False) as stranger:
            assert not stranger.status.up
            assert "certificate" in (stranger.status.reason or "").lower()


async def test_memory_that_is_full_refuses_and_is_not_away() -> None:
    metrics = Metrics()
    with running_store("--maxmemory", "1", "--maxmemory-policy", "noeviction") as store:
        async with open_store(store.url, metrics, up=False) as shared:
            assert await shared.take("rate", "ann", 1, 0.01) is None
            reason = shared.status.reason

    assert reason is None or "memory" in reason


async def test_unix_socket_is_found(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with running_store("--unixsocket", str(path)):
        async with open_store(f"unix://{path}") as shared:
            assert await shared.take("rate", "ann", 1, 0.01) == 0
