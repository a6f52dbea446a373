"""How a server is reached without one: which of its addresses, for how long, and how long a connection is kept."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest

from gateway.config.address import Origin
from gateway.http1.connection import CONNECT_TIME, KEPT_TIME
from gateway.proxy.transport.http.client import HttpClient, is_address, keep_alive, resolve
from gateway.proxy.transport.transport_interface import LinkLost
from tests.gateway.proxy.transport.kept_log import settled

from .test_client import Reusable, _no_proxy_of_the_machine

__all__ = ["_no_proxy_of_the_machine"]
pytestmark = pytest.mark.anyio
ORIGIN = Origin(False, "tools.example", 80)


@pytest.fixture
def anyio_backend() -> str:
    """Only the loop of asyncio lets a test set its time."""
    return "asyncio"


class Socket:
    """Notes the options that it gets."""

    def __init__(self) -> None:
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options[level, option] = value


class Link:
    """A connection to an address."""

    def __init__(self, sock: Socket | None = None) -> None:
        self.socket = sock

    def get_extra_info(self, name: str) -> Socket | None:
        assert name == "socket"
        return self.socket


class Network:
    """Addresses that answer, refuse or say nothing."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[tuple[str, int, object, object]] = []
        self.socket = Socket()

    async def getaddrinfo(self, host: str, port: int, *, type: int) -> list[Any]:  # noqa: A002 - the loop's own name
        assert type == socket.SOCK_STREAM
        return [(0, 0, 0, "", (address, port)) for address in self.addresses for _ in range(2)]

    async def create_connection(
        self, factory: Callable[[], Any], address: str, port: int, *, ssl: object, server_hostname: object
    ) -> tuple[Link, object]:
        self.asked.append((address, port, ssl, server_hostname))
        if self.addresses[address] == "refuses":
            raise OSError(111, "Connection refused")
        if self.addresses[address] == "is silent":
            await anyio.sleep_forever()
        return Link(self.socket), factory()

    async def create_unix_connection(self, factory: Callable[[], Any], path: str) -> tuple[Link, object]:
        self.asked.append((path, 0, None, None))
        return Link(), factory()


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Network]:
    loop = asyncio.get_running_loop()

    def make(**addresses: str) -> Network:
        network = Network(**addresses)
        for name in ("getaddrinfo", "create_connection", "create_unix_connection"):
            monkeypatch.setattr(loop, name, getattr(network, name))
        return network

    return make


async def test_first_address_that_answers_is_used_and_each_asked_once(network):
    there = network(a="refuses", b="answers", c="answers")
    connection = await HttpClient().take(ORIGIN)

    assert [each[:2] for each in there.asked] == [("a", 80), ("b", 80)]
    assert (connection.origin, connection.guarded) == (ORIGIN, False)
    assert there.socket.options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1


async def test_server_none_of_whose_addresses_answers_is_away_for_the_last_reason(network):
    there = network(a="refuses", b="refuses")
    with pytest.raises(LinkLost, match=r"can't connect to http://tools\.example: Connection refused") as lost:
        await HttpClient().take(ORIGIN)

    assert [each[0] for each in there.asked] == ["a", "b"]
    assert not lost.value.sent


async def test_silent_addresses_share_the_time_and_the_last_one_gets_the_rest(network, clock):
    there = network(a="is silent", b="is silent", c="is silent")
    taking = asyncio.create_task(HttpClient().take(ORIGIN))
    await settled()
    seen = []
    for seconds in (3.3, 0.1, 4.9, 0.2, 1.4):
        await clock.passes(seconds)
        seen.append((len(there.asked), taking.done()))
    await clock.passes(0.2)
    with pytest.raises(LinkLost, match=f"no answer within {CONNECT_TIME:g} s"):
        await taking

    assert seen == [(1, False), (2, False), (2, False), (3, False), (3, False)]
    assert CONNECT_TIME == 10.0


async def test_name_is_checked_over_tls_whatever_its_address(network):
    there = network(a="answers")
    client = HttpClient()
    await client.take(Origin(True, "tools.example", 443))
    await client.take(Origin(True, "tools.example", 443))

    assert [each[3] for each in there.asked] == ["tools.example"] * 2
    assert there.asked[0][2] is there.asked[1][2] is not None


async def test_socket_of_this_machine_is_reached_by_its_path(network):
    there = network()
    await HttpClient().take(Origin(False, "/run/x.sock", 0))

    assert there.asked == [("/run/x.sock", 0, None, None)]


async def test_address_is_not_looked_up(network):
    network(a="answers")

    assert await resolve(Origin(False, "10.0.0.1", 80)) == ["10.0.0.1"]
    assert await resolve(Origin(False, "fe80::1%eth0", 80)) == ["fe80::1%eth0"]
    assert await resolve(ORIGIN) == ["a"]
    assert [is_address(each) for each in ("10.0.0.1", "::1", "a.example", "10")] == [True, True, False, False]


def test_silent_connection_is_noticed_by_tcp_within_minutes():
    sock = Socket()
    keep_alive(cast("Any", Link(sock)))
    keep_alive(cast("Any", Link()))

    assert sock.options == {
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 60,
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 15,
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 4,
    }


async def test_idle_connections_are_closed_when_their_time_is_up_each_in_turn(clock):
    client = HttpClient()
    given: list[Any] = [Reusable(), Reusable()]
    client.give(given[0])
    await clock.passes(2.0)
    client.give(given[1])
    seen = []
    for seconds in (1.9, 0.1, 1.0, 0.9, 0.1):
        await clock.passes(seconds)
        seen.append([each.closed for each in given])

    assert seen == [[False, False], *[[True, False]] * 3, [True, True]]


async def test_rest_of_an_answer_is_thrown_away_for_a_second(clock):
    client = HttpClient()
    within, idle = cast("Any", Reusable(usable=False, complete=False)), cast("Any", Reusable())
    client.give(within, drain=True)
    client.give(idle)
    seen = []
    for seconds in (0.9, 0.1):
        await clock.passes(seconds)
        seen.append(within.closed)

    assert seen == [False, True]
    assert not idle.closed
    assert await client.take(idle.origin) is idle


async def test_connection_that_broke_while_it_was_idle_is_swept_away(clock):
    client = HttpClient()
    broken, other = cast("Any", Reusable()), cast("Any", Reusable())
    client.give(broken)
    await clock.passes(1.0)
    client.give(other)
    broken.usable = False
    await clock.passes(KEPT_TIME - 1.0)

    assert (broken.closed, other.closed) == (True, False)
    client.close()


@pytest.mark.parametrize(("after", "is_taken"), [(KEPT_TIME - 0.1, True), (KEPT_TIME, False)])
async def test_connection_is_not_used_again_when_its_time_is_up(clock, after, is_taken):
    client = HttpClient()
    idle = cast("Any", Reusable())
    client.give(idle)
    clock.now += after
    if is_taken:
        assert await client.take(idle.origin) is idle
    else:
        with pytest.raises(LinkLost):
            await client.take(idle.origin)

    assert idle.closed is not is_taken
    client.close()
