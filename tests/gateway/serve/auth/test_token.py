"""The token's life on disk, and the host guard."""

import stat
from collections.abc import Iterable
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.gateway_config import GatewayConfig, ServeConfig
from gateway.errors import ConfigError
from gateway.serve.auth.gateway_token import HostGuard, ensure_token, guard_admin, own_hosts, stored_token, token_path
from tests.cases import each_of

pytestmark = pytest.mark.anyio


async def _answer(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("inside")


def endpoint() -> Starlette:
    return Starlette(routes=[Route("/v1/models", _answer)])


async def get(
    app: ASGIApp, headers: Iterable[tuple[bytes, bytes]] = (), url: str = "http://localhost/v1/models"
) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
        return await client.get(url, headers=list(headers))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@each_of(
    "host",
    ["localhost", "localhost:8600", "127.0.0.1:1", "[::1]:8600", "gateway", "GateWay:9", "exact:80", "LOCALHOST:1"],
)
async def test_host_that_is_ours_passes(host: str) -> None:
    guard = HostGuard(endpoint(), ("gateway", "Exact:80"))

    assert (await get(guard, [(b"host", host.encode())])).status_code == 200


@each_of(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "exact",
        "exact:81",
        "gateway.evil",
        "",
        "me@localhost",
        "localhost/x",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "localhost:x",
        "[::1",
        "[::1].evil.example",
        "[::1]x:8600",
        "[::1%evil]",
        "evil.example#localhost",
        "localhost:99999",
    ],
)
async def test_host_that_is_not_ours_is_refused(host: str) -> None:
    response = await get(HostGuard(endpoint(), ("gateway", "exact:80")), [(b"host", host.encode())])

    assert response.status_code == 421
    assert response.json()["error"]["code"] == "host_not_allowed"
    assert "serve.allowed_hosts" in response.json()["error"]["message"]


@each_of(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("https://127.0.0.1", 200),
        ("https://gateway", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("file://localhost", 403),
        ("http://localhost@evil.example", 403),
        ("http://", 403),
    ],
)
async def test_page_of_another_site_is_refused(origin: str, status: int) -> None:
    headers = [(b"host", b"localhost"), (b"origin", origin.encode())]

    response = await get(HostGuard(endpoint(), ("gateway",)), headers)

    assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["code"] == "origin_not_allowed"


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("10.0.0.7", ("gateway", "10.0.0.7")),
        ("fd00::7", ("gateway", "fd00::7")),
        ("[fd00::7]", ("gateway", "fd00::7")),
        ("box.lan", ("gateway", "box.lan")),
        ("0.0.0.0", ("gateway",)),
        ("::", ("gateway",)),
        ("", ("gateway",)),
    ],
)
def test_address_that_the_gateway_listens_on_is_a_name_of_it_unless_it_means_all(
    host: str, names: tuple[str, ...]
) -> None:
    assert own_hosts(ServeConfig(host=host, allowed_hosts=("gateway",))) == names


@pytest.mark.parametrize(("host", "asked"), [("10.0.0.7", "10.0.0.7:8600"), ("fd00::7", "[FD00::7]:8600")])
async def test_address_that_the_gateway_listens_on_passes(host: str, asked: str) -> None:
    guard = HostGuard(endpoint(), own_hosts(ServeConfig(host=host)))

    assert (await get(guard, [(b"host", asked.encode())])).status_code == 200


@pytest.mark.parametrize(
    ("admin_host", "asked", "status"),
    [
        ("127.0.0.1", "evil.example", 421),
        ("localhost", "evil.example:8601", 421),
        ("127.0.0.1", "127.0.0.1:8601", 200),
        ("127.0.0.1", "gateway:8601", 200),
        ("0.0.0.0", "10.0.0.7:8601", 200),
        ("10.0.0.7", "prometheus-target", 200),
    ],
)
async def test_admin_port_on_loopback_answers_to_names_of_the_gateway_only(
    admin_host: str, asked: str, status: int
) -> None:
    app = guard_admin(endpoint(), ServeConfig(admin_host=admin_host, allowed_hosts=("gateway",)))

    assert (await get(app, [(b"host", asked.encode())])).status_code == status


async def test_refusal_quotes_the_host_escaped_and_cut() -> None:
    response = await get(HostGuard(endpoint()), [(b"host", b"e" * 500 + b"\x9b")])

    assert response.json()["error"]["message"].count("e" * 101) == 0


async def test_start_and_end_of_the_server_pass_without_a_host() -> None:
    seen: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["type"])

    await HostGuard(app)({"type": "lifespan"}, None, None)

    assert seen == ["lifespan"]


def test_no_token_is_asked_on_loopback(state: Path) -> None:
    assert ensure_token(GatewayConfig()) is None
    assert list(state.iterdir()) == []


def test_configured_token_wins_everywhere(state: Path) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        assert ensure_token(GatewayConfig(serve=ServeConfig(host=host, token="configured"))) == "configured"
    assert list(state.iterdir()) == []


def test_token_is_made_at_the_first_start_beyond_loopback_and_kept(state: Path) -> None:
    config = GatewayConfig(serve=ServeConfig(host="0.0.0.0"))

    first = ensure_token(config)

    assert first is not None
    assert len(first) >= 43
    assert ensure_token(config) == first
    assert token_path() == state / "codec-gateway" / "token"
    assert stat.S_IMODE(token_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(token_path().parent.stat().st_mode) == 0o700
    assert [path.name for path in token_path().parent.iterdir()] == ["token"]


def test_two_machines_get_two_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a"))
    first = stored_token()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "b"))

    assert stored_token() != first


@pytest.mark.usefixtures("state")
def test_token_that_others_can_read_is_refused() -> None:
    stored_token()
    token_path().chmod(0o640)

    with pytest.raises(ConfigError, match="others can read this token"):
        stored_token()


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("content", [b"", b"\n", b"short\n", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"])
def test_file_without_a_token_is_refused(content: bytes) -> None:
    stored_token()
    token_path().write_bytes(content)

    with pytest.raises(ConfigError, match="token"):
        stored_token()


def test_state_folder_that_can_not_be_written_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))

    with pytest.raises(ConfigError, match="set CODEC_GATEWAY_TOKEN"):
        stored_token()


@pytest.mark.parametrize(
    "twice",
    [
        [(b"host", b"localhost"), (b"host", b"evil.example")],
        [(b"host", b"evil.example"), (b"host", b"localhost")],
        [(b"host", b"localhost"), (b"host", b"localhost")],
        [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"https://evil.example")],
        [(b"host", b"localhost"), (b"origin", b"https://evil.example"), (b"origin", b"http://localhost")],
    ],
)
async def test_second_host_or_origin_is_refused_whichever_is_ours(twice: list[tuple[bytes, bytes]]) -> None:
    guard = HostGuard(endpoint())
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    for _ in range(2):
        sent.clear()
        await guard({"type": "http", "method": "GET", "path": "/v1/models", "headers": twice}, None, send)
        assert sent[0]["status"] == 400
