"""The browser's way back from a sign-in: where it is listened for, and what it may say there."""

import asyncio
from typing import Any, cast

import pytest

from gateway.proxy.transport.oauth.code_flow import NotOurs
from gateway.proxy.transport.oauth.sign_in import Redirects, open_redirects
from gateway.proxy.transport.transport_interface import NoAnswer
from tests.cases import each_of

pytestmark = pytest.mark.anyio


class Machine:
    """A machine whose ports are taken or free; nothing listens."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.asked: list[tuple[str, int]] = []
        self.listening = 0

    async def start_server(self, serve: object, host: str, port: int, *, limit: int) -> "Machine":
        self.asked.append((host, port))
        if port in self.taken:
            raise OSError(98, "Address already in use")
        self._port = port or 5000
        self.listening += 1
        return self

    @property
    def sockets(self) -> list["Machine"]:
        return [self]

    def getsockname(self) -> tuple[str, int]:
        return "", self._port

    def close(self) -> None:
        self.listening -= 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(asyncio, "start_server", machine.start_server)
    return machine


@pytest.mark.parametrize(
    ("configured", "used", "ports", "uri"),
    [
        (None, None, [0], "http://127.0.0.1:5000/callback"),
        (None, "http://127.0.0.1:4321/callback", [4321], "http://127.0.0.1:4321/callback"),
        (None, "http://127.0.0.1:99/callback", [99, 0], "http://127.0.0.1:5000/callback"),
        (None, "http://localhost:4321/callback", [0], "http://127.0.0.1:5000/callback"),
        (None, "http://127.0.0.1/callback", [0], "http://127.0.0.1:5000/callback"),
        ("http://[::1]/back", "http://[::1]:4321/back", [4321], "http://[::1]:4321/back"),
        ("http://localhost:70/back", "http://localhost:4321/back", [70], "http://localhost:70/back"),
    ],
)
async def test_port_is_the_configured_one_or_that_of_the_last_sign_in_or_a_free_one(
    machine, configured, used, ports, uri
):
    machine.taken = {99}
    async with open_redirects(configured, used) as redirects:
        assert machine.listening == 1
        assert redirects.uri == uri

    assert [port for _, port in machine.asked] == ports
    assert machine.listening == 0


async def test_configured_port_that_is_taken_is_named(machine):
    machine.taken = {99}
    with pytest.raises(
        NoAnswer, match=r"can't listen on port 99 of '127\.0\.0\.1' \(Address already in use\): free it"
    ):
        async with open_redirects("http://127.0.0.1:99/back", None):
            pass


@pytest.mark.parametrize("configured", ["https://gateway.example/back", "http://gateway.example/back"])
async def test_nobody_listens_at_an_address_that_is_not_of_this_machine(machine, configured):
    async with open_redirects(configured, "http://127.0.0.1:4321/callback") as redirects:
        assert redirects.uri == configured

    assert machine.asked == []


def read(address: str) -> str:
    if "deny" in address:
        raise NoAnswer("denied")
    if "code=" not in address:
        raise NotOurs
    return address.partition("code=")[2]


async def test_only_the_first_address_that_is_ours_settles_a_sign_in_that_has_begun():
    redirects = Redirects("http://127.0.0.1:1/callback")
    early = redirects.take("code=0")
    redirects.expect(read)

    assert [early, *map(redirects.take, ("other", "code=1", "code=2"))] == [False, False, True, False]
    assert await redirects.code() == "1"


async def test_refusal_of_the_authorization_server_settles_it_too():
    redirects = Redirects("http://127.0.0.1:1/callback")
    redirects.expect(read)

    assert redirects.take("deny")
    with pytest.raises(NoAnswer, match="denied"):
        await redirects.code()


class Writer:
    """What a browser gets."""

    def __init__(self) -> None:
        self.said = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.said += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


async def visit(redirects: Redirects, head: bytes) -> bytes:
    """Have a browser come, and return what it gets."""
    reader, writer = asyncio.StreamReader(), Writer()
    reader.feed_data(head)
    reader.feed_eof()
    await redirects.serve(reader, cast("Any", writer))
    assert writer.closed
    return writer.said


async def test_browser_that_comes_back_is_told_that_it_is_done_and_others_are_not():
    redirects = Redirects("http://127.0.0.1:1/callback")
    redirects.expect(read)
    others = [
        await visit(redirects, line + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        for line in (b"GET /else?code=1", b"POST /callback?code=1", b"GET /callback?state=1")
    ]
    ours = await visit(redirects, b"GET /callback?code=7 HTTP/1.1\r\nhost: x\r\n\r\n")

    assert [said.partition(b"\r\n")[0] for said in others] == [b"HTTP/1.1 404 Not Found"] * 3
    head, _, body = ours.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: %d" % len(body) in head
    assert b"You can close this page" in body
    assert await redirects.code() == "7"


@each_of("head", [b"", b"GET /callback", b"GET\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"])
async def test_what_is_no_request_is_not_answered(head):
    assert await visit(Redirects("http://127.0.0.1:1/callback"), head) == b""
