"""Connections: TLS, proxies, what is kept and for how long, and where nobody may be led."""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.config.address import Origin
from gateway.proxy.transport.http.client import HttpClient, open_http_client, proxy_for
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer

from .raw_server import Asked, Reply, raw_server

pytestmark = pytest.mark.anyio
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def client() -> AsyncGenerator[HttpClient]:
    async with open_http_client() as client:
        yield client


async def fine(asked: Asked, reply: Reply) -> None:
    await reply.whole(200, b"fine")


async def fetch(client: HttpClient, origin: Origin, *args: Any) -> bytes | None:
    with anyio.fail_after(20):
        connection = await client.take(origin, *args)
        try:
            connection.send("GET", "/x?y", b"host: h\r\n", b"")
            await connection.head()
            return await connection.read(1000)
        finally:
            client.give(connection)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `server.test` and 127.0.0.1 that vouches for itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    names = [x509.DNSName("server.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "all.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@pytest.fixture
def tls(authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    return context


async def test_server_over_tls_is_reached_where_its_certificate_is_known(client, tls, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    async with raw_server(fine, tls) as server:
        for _ in range(3):
            assert await fetch(client, Origin(True, "127.0.0.1", server.port)) == b"fine"
        assert server.connections == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_server_whose_certificate_is_not_known_or_of_another_name_gets_nothing(
    client, tls, authority, monkeypatch, host
):
    if host == "localhost":
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    async with raw_server(fine, tls) as server:
        with pytest.raises(LinkLost, match="TLS failed") as lost:
            await fetch(client, Origin(True, host, server.port))

    assert not lost.value.sent
    assert server.asked == []


async def test_name_that_does_not_exist_is_a_sentence(client):
    with pytest.raises(LinkLost, match=r"can't connect to http://nowhere\.invalid: ") as lost:
        await fetch(client, Origin(False, "nowhere.invalid", 80))

    assert not lost.value.sent


async def test_server_that_does_not_take_the_connection_in_time_is_given_up(client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.http.client.CONNECT_TIME", 0.2)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(mute, "127.0.0.1", 0)
    try:
        with pytest.raises(LinkLost, match="no answer within") as lost:
            await fetch(client, Origin(True, "127.0.0.1", listening.sockets[0].getsockname()[1]))
    finally:
        listening.close()

    assert not lost.value.sent


async def test_idle_connection_is_closed_after_a_while(client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.http.client.KEPT_TIME", 0.05)
    closed = asyncio.Event()

    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.whole(200)
        await reply.gone()
        closed.set()

    async with raw_server(answer) as server:
        await fetch(client, Origin(False, "127.0.0.1", server.port))
        with anyio.fail_after(20):
            await closed.wait()


async def test_rest_of_an_answer_is_waited_for_only_for_a_while(client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.http.client._DRAIN_TIME", 0.05)
    closed = asyncio.Event()

    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.gone()
        closed.set()

    async with raw_server(answer) as server:
        connection = await client.take(Origin(False, "127.0.0.1", server.port))
        connection.send("GET", "/", b"", b"")
        await connection.head()
        client.give(connection, drain=True)
        with anyio.fail_after(20):
            await closed.wait()


async def test_rest_of_an_answer_that_is_long_is_not_read(client, monkeypatch):
    # Not its time, but its length ends it.
    monkeypatch.setattr("gateway.proxy.transport.http.client._DRAIN_TIME", 600)
    closed = asyncio.Event()

    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"x" * 10)
        try:
            while True:
                await reply.chunk(b"x" * 10_000)
        finally:
            closed.set()

    async with raw_server(answer) as server:
        connection = await client.take(Origin(False, "127.0.0.1", server.port))
        connection.send("GET", "/", b"", b"")
        await connection.head()
        client.give(connection, drain=True)
        with anyio.fail_after(20):
            await closed.wait()


async def test_url_that_somebody_else_named_does_not_lead_into_our_network(client):
    async with raw_server(fine) as server:
        origin = Origin(False, "127.0.0.1", server.port)
        by_name = Origin(False, "localhost", server.port)
        await fetch(client, origin)
        await fetch(client, by_name)
        for named in (origin, by_name):
            with pytest.raises(NoAnswer, match="private address"):
                await fetch(client, named, frozenset())
        assert await fetch(client, origin, frozenset({origin})) == b"fine"

    assert len(server.asked) == 3


@pytest.mark.parametrize("host", ["10.0.0.1", "fd00::1"])
async def test_proxy_is_not_asked_for_a_private_address_that_somebody_else_named(client, monkeypatch, host):
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")
    with pytest.raises(NoAnswer, match=f"leads to the private address {host}"):
        await client.take(Origin(False, host, 80), frozenset())


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
async def test_server_elsewhere_is_asked_for_through_the_proxy_of_the_environment(client, monkeypatch, variable):
    async with raw_server(fine) as proxy:
        monkeypatch.setenv(variable, f"http://me:pw@127.0.0.1:{proxy.port}")
        for _ in range(2):
            assert await fetch(client, Origin(False, "server.test", 8080)) == b"fine"

    first, second = proxy.asked
    assert (first.target, first.headers["host"]) == ("http://server.test:8080/x?y", "h")
    assert first.headers["proxy-authorization"] == "Basic bWU6cHc="
    assert second.connection == first.connection


@asynccontextmanager
async def tunnelling(port: int) -> AsyncGenerator[Any]:
    """A proxy that connects whoever asks to that port of this machine."""

    async def answer(asked: Asked, reply: Reply) -> None:
        inner, out = await asyncio.open_connection("127.0.0.1", port)
        await reply.raw(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()

        try:
            await asyncio.gather(copy(inner, reply.writer), copy(reply.reader, out), return_exceptions=True)
        finally:
            out.close()

    async with raw_server(answer) as proxy:
        yield proxy


async def test_tls_goes_through_a_tunnel_and_is_checked_at_its_far_end(client, tls, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    async with raw_server(fine, tls) as server, tunnelling(server.port) as proxy:
        monkeypatch.setenv("https_proxy", f"http://me:pw@127.0.0.1:{proxy.port}")
        for _ in range(2):
            assert await fetch(client, Origin(True, "server.test", 443)) == b"fine"
        with pytest.raises(LinkLost, match="TLS failed"):
            await fetch(client, Origin(True, "other.test", 443))

    first, second = proxy.asked
    assert (first.method, first.target, first.headers["host"]) == ("CONNECT", "server.test:443", "server.test:443")
    assert first.headers["proxy-authorization"] == "Basic bWU6cHc="
    assert second.target == "other.test:443"
    assert [asked.target for asked in server.asked] == ["/x?y", "/x?y"]
    assert "proxy-authorization" not in server.asked[0].headers


async def test_proxy_that_refuses_a_tunnel_is_named(client, monkeypatch):
    async def answer(asked: Asked, reply: Reply) -> None:
        await reply.whole(407)

    async with raw_server(answer) as proxy:
        monkeypatch.setenv("https_proxy", f"127.0.0.1:{proxy.port}")
        with pytest.raises(LinkLost, match=r"refuses to connect to 'server\.test:443': HTTP 407") as lost:
            await fetch(client, Origin(True, "server.test", 443))

    assert not lost.value.sent


def proxied(origin: Origin) -> str | None:
    proxy = proxy_for(origin)
    return None if proxy is None else str(proxy.origin)


class TestWhichProxy:
    def test_each_scheme_has_its_own(self, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://plain:3128")
        monkeypatch.setenv("https_proxy", "http://secure:3128")

        assert proxied(Origin(False, "a.example", 80)) == "http://plain:3128"
        assert proxied(Origin(True, "a.example", 443)) == "http://secure:3128"

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
    def test_this_machine_is_never_reached_through_one(self, monkeypatch, host):
        monkeypatch.setenv("all_proxy", "http://plain:3128")

        assert proxied(Origin(False, host, 80)) is None

    def test_exceptions_are_honoured(self, monkeypatch):
        monkeypatch.setenv("all_proxy", "http://plain:3128")
        monkeypatch.setenv("no_proxy", "inner.example, 10.0.0.1")

        assert proxied(Origin(False, "a.inner.example", 80)) is None
        assert proxied(Origin(False, "10.0.0.1", 80)) is None
        assert proxied(Origin(False, "inner.example.org", 80)) == "http://plain:3128"

    @pytest.mark.parametrize("url", ["socks5://a:1", "https://a:1", "http://"])
    def test_kind_that_we_can_not_speak_to_is_said(self, monkeypatch, url):
        monkeypatch.setenv("all_proxy", url)
        with pytest.raises(LinkLost, match="proxy"):
            proxied(Origin(False, "a.example", 80))


class Reusable:
    """A connection that can take another request, or one that is within an answer."""

    guarded = False

    def __init__(self, *, usable: bool = True, complete: bool = True) -> None:
        self.origin = Origin(False, "/nowhere/at/all.sock", 0)
        self.usable = usable
        self.complete = complete
        self.idle_since = 0.0
        self.closed = False
        self.drained: Any = None

    def close(self) -> None:
        self.closed = True

    def drain(self, then: Any) -> None:
        self.drained = then


class TestKeptConnections:
    """What is given back, without a server."""

    async def test_the_last_one_given_back_is_taken_first_and_none_twice(self, client):
        given: list[Any] = [Reusable(), Reusable()]
        for each in given:
            client.give(each)
        taken = [await client.take(given[0].origin) for _ in given]

        assert taken == given[::-1]
        with pytest.raises(LinkLost, match=r"can't connect to .*nowhere") as lost:
            await client.take(given[0].origin)
        assert not lost.value.sent

    async def test_those_that_broke_or_waited_too_long_are_closed_and_not_taken(self, client, monkeypatch):
        broken, old = cast("Any", Reusable()), cast("Any", Reusable())
        client.give(broken)
        broken.usable = False
        with pytest.raises(LinkLost):
            await client.take(broken.origin)
        client.give(old)
        monkeypatch.setattr("gateway.proxy.transport.http.client.KEPT_TIME", 0.0)
        with pytest.raises(LinkLost):
            await client.take(old.origin)

        assert broken.closed
        assert old.closed

    async def test_only_so_many_are_kept_for_an_origin_and_none_that_somebody_else_named(self, client):
        named = cast("Any", Reusable())
        named.guarded = True
        given: list[Any] = [named, *(Reusable() for _ in range(66))]
        for each in given:
            client.give(each)

        assert [each.closed for each in given] == [True, *[False] * 64, True, True]

    async def test_one_within_an_answer_is_taken_again_once_the_rest_is_thrown_away(self, client):
        within = cast("Any", Reusable(usable=False, complete=False))
        client.give(within, drain=True)
        with pytest.raises(LinkLost):
            await client.take(within.origin)
        within.usable = within.complete = True
        within.drained()

        assert await client.take(within.origin) is within
        assert not within.closed

    @pytest.mark.parametrize(("complete", "drain"), [(False, False), (True, True)])
    async def test_one_that_can_not_be_used_again_is_closed(self, client, complete, drain):
        spent = cast("Any", Reusable(usable=False, complete=complete))
        client.give(spent, drain=drain)

        assert spent.closed
        assert spent.drained is None

    async def test_only_so_many_answers_are_thrown_away_at_a_time(self, client):
        given: list[Any] = [Reusable(usable=False, complete=False) for _ in range(65)]
        for each in given:
            client.give(each, drain=True)

        assert [each.closed for each in given] == [*[False] * 64, True]

    async def test_close_closes_all_of_them_and_leaves_no_timer(self):
        client = HttpClient()
        client.close()
        idle, within = cast("Any", Reusable()), cast("Any", Reusable(usable=False, complete=False))
        client.give(idle)
        client.give(within, drain=True)
        sweeper = client._sweeper
        client.close()

        assert idle.closed
        assert within.closed
        assert sweeper is not None
        assert sweeper.cancelled()
