"""Proxies that are believed, and the clients that they speak for."""

from typing import Any

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.config.access import ConnectionsConfig
from gateway.observe.metrics import Metrics
from gateway.serve.http.connection_limits import ClientConnections, ForwardedClients, TrustedProxies
from tests.cases import each_of

pytestmark = pytest.mark.anyio

PROXIES = TrustedProxies(("10.0.0.0/8", "2001:db8::/32", "127.0.0.1/32"))


@each_of(
    ("written", "client"),
    [
        ([b"1.2.3.4"], "1.2.3.4"),
        ([b"6.6.6.6, 1.2.3.4"], "1.2.3.4"),
        ([b"6.6.6.6", b"1.2.3.4, 10.1.1.1"], "1.2.3.4"),
        ([b"1.2.3.4:5678"], "1.2.3.4"),
        ([b"[2a00::1]:80"], "2a00::1"),
        ([b"2a00::1"], "2a00::1"),
        ([b"2a00::1, 2001:db8::7"], "2a00::1"),
        ([b"1.2.3.4, ::ffff:10.0.0.1"], "1.2.3.4"),
        ([b"10.1.1.1"], None),
        ([b"1.2.3.4, unknown"], None),
        ([b""], None),
        ([], None),
    ],
)
def test_client_is_the_last_address_that_is_no_proxy_of_ours(written: list[bytes], client: str | None) -> None:
    headers = [(b"host", b"x"), *((b"x-forwarded-for", value) for value in written)]

    assert PROXIES.client(headers) == client


def test_nobody_is_believed_unless_named() -> None:
    assert "127.0.0.1" not in TrustedProxies(())
    assert "::ffff:10.2.3.4" in PROXIES
    assert "11.0.0.1" not in PROXIES
    assert "not an address" not in PROXIES


def scope_of(peer: str, forwarded: str) -> dict[str, Any]:
    headers = [(b"x-forwarded-for", forwarded.encode())]
    return {"type": "http", "method": "GET", "path": "/", "client": (peer, 1), "headers": headers}


class Recorder:
    """An application that waits, and what it and its clients saw."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.came = anyio.Event()
        self.go_on = anyio.Event()
        self.sent: list[Message] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope["client"][0])
        self.came.set()
        await self.go_on.wait()

    async def send(self, message: Message) -> None:
        self.sent.append(message)


async def receive() -> Message:
    return {"type": "http.request"}


async def test_only_a_proxy_s_word_counts() -> None:
    app = Recorder()
    app.go_on.set()
    layer = ForwardedClients(app, ClientConnections(ConnectionsConfig(), Metrics().connections, proxies=PROXIES))

    await layer(scope_of("10.9.9.9", "1.2.3.4"), receive, app.send)
    await layer(scope_of("7.7.7.7", "1.2.3.4"), receive, app.send)

    assert app.seen == ["1.2.3.4", "7.7.7.7"]


async def test_client_behind_a_proxy_has_its_own_share_and_takes_nobody_else_s() -> None:
    app = Recorder()
    connections = ClientConnections(ConnectionsConfig(per_address=1), Metrics().connections, proxies=PROXIES)
    layer = ForwardedClients(app, connections)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(layer, scope_of("10.9.9.9", "1.2.3.4"), receive, app.send)
        await app.came.wait()
        await layer(scope_of("10.9.9.9", "1.2.3.4"), receive, app.send)
        assert [message.get("status") for message in app.sent] == [503, None]
        tasks.start_soon(layer, scope_of("10.9.9.9", "1.2.3.5"), receive, app.send)
        app.go_on.set()
    await layer(scope_of("10.9.9.9", "1.2.3.4"), receive, app.send)

    assert app.seen == ["1.2.3.4", "1.2.3.5", "1.2.3.4"]
