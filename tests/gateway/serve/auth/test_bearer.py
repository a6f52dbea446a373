"""The credential of every request: who gets in, as whom, and what the others are told."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.serve.auth.api_keys import KeyFile, KeyRecord, KeyRing, digest_of
from gateway.serve.auth.bearer import BearerAuth, Credentials
from gateway.serve.auth.identity import refusal_over_limit
from gateway.serve.auth.rate_limiter import FAILURES_AT_ONCE, Limiter
from gateway.serve.http.request_parts import PRINCIPAL
from tests.cases import each_of

TOKEN = "a-token-of-ours-π"
STRONG = "x" * 43
NOW = datetime(2026, 11, 21, tzinfo=UTC)

pytestmark = pytest.mark.anyio


class Endpoint:
    """The application behind the sign_in: it notes who came, and can be held."""

    def __init__(self) -> None:
        self.seen: list[Principal] = []
        self.entered = anyio.Event()
        self.hold = anyio.Event()
        self.hold.set()
        self.starts_nothing = False
        """Whether what comes begins nothing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope["state"][PRINCIPAL])
        if (full := refusal_over_limit(scope)) is not None and not self.starts_nothing:
            await full(scope, receive, send)
            return
        self.entered.set()
        await self.hold.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})


class SignIn:
    """An endpoint behind `BearerAuth`, and a client before it."""

    def __init__(self, token: str | None = None, keys: Path | None = None, **more: Any) -> None:
        self.endpoint = Endpoint()
        self.metrics = Metrics()
        ring = KeyRing(keys) if keys else None
        self.app: ASGIApp = BearerAuth(self.endpoint, Credentials(token, ring), self.metrics.access, **more)

    async def ask(
        self,
        credential: str | bytes | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
        peer: str = "127.0.0.1",
        **headers: str,
    ) -> httpx2.Response:
        raw = credential.encode() if isinstance(credential, str) else credential
        sent: list[tuple[bytes, bytes]] = [] if raw is None else [(b"authorization", raw)]
        sent += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return await self.send(sent, method=method, path=path, peer=peer)

    async def send(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        method: str = "POST",
        path: str = "/mcp",
        peer: str = "127.0.0.1",
    ) -> httpx2.Response:
        transport = httpx2.ASGITransport(app=self.app, client=(peer, 5000))
        async with httpx2.AsyncClient(transport=transport) as client:
            return await client.request(method, f"http://localhost{path}", headers=list(headers))

    def counted(self, line: str) -> float:
        values = {
            name: value for name, _, value in (x.rpartition(" ") for x in self.metrics.render().decode().splitlines())
        }
        return float(values[line])


def one_at_a_time(folder: Path) -> SignIn:
    """For a key of which one request runs at a time."""
    path = folder / "keys.toml"
    KeyFile(path).add(KeyRecord("a", digest_of("key"), NOW, concurrency=1))
    return SignIn(None, path)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    KeyFile(path).add(KeyRecord("laptop", digest_of("laptop's key"), NOW, servers=("time",)))
    return path


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
@pytest.mark.parametrize("token", [TOKEN, STRONG])
async def test_operator_s_token_opens_everything(scheme: str, token: str) -> None:
    sign_in = SignIn(token)

    response = await sign_in.ask(f"{scheme} {token}")

    assert response.text == "inside"
    assert sign_in.endpoint.seen == [Principal("operator")]


@each_of(
    "value",
    [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xff"],
)
async def test_request_without_a_good_credential_gets_401_in_the_shape_of_openai(value: str | None) -> None:
    sign_in = SignIn(TOKEN)

    response = await sign_in.ask(value)

    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith('Bearer realm="codec-gateway"')
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == "invalid_api_key"
    assert "codec-gateway token" in error["message"]
    assert TOKEN not in response.text
    assert sign_in.endpoint.seen == []


async def test_two_credentials_are_none() -> None:
    sign_in = SignIn(TOKEN)
    good = (b"authorization", f"Bearer {TOKEN}".encode())

    assert (await sign_in.send([good, (b"authorization", b"Bearer x")])).status_code == 401
    assert (await sign_in.send([good, good])).status_code == 401
    assert (await sign_in.send([good])).status_code == 200


async def test_nobody_is_asked_where_nothing_is_configured(tmp_path: Path) -> None:
    sign_in = SignIn(None, tmp_path / "keys.toml")

    assert (await sign_in.ask()).status_code == 200
    assert (await sign_in.ask("Bearer whatever")).status_code == 200
    assert {principal.name for principal in sign_in.endpoint.seen} == {"anonymous"}


async def test_key_brings_its_holder_s_name_and_view(keys: Path) -> None:
    sign_in = SignIn(STRONG, keys)

    assert (await sign_in.ask("Bearer laptop's key")).status_code == 200

    assert sign_in.endpoint.seen == [Principal("laptop", frozenset({"time"}))]


async def test_key_file_alone_shuts_strangers_out_on_loopback_too(keys: Path) -> None:
    assert (await SignIn(None, keys).ask()).status_code == 401


async def test_revoked_key_is_refused_at_the_next_request(keys: Path) -> None:
    sign_in = SignIn(None, keys)
    assert (await sign_in.ask("Bearer laptop's key")).status_code == 200

    KeyFile(keys).revoke("laptop")

    assert (await sign_in.ask("Bearer laptop's key")).status_code == 401


async def test_expired_key_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    KeyFile(path).add(KeyRecord("old", digest_of("old key"), NOW, expires=datetime(2020, 1, 1, tzinfo=UTC)))
    sign_in = SignIn(None, path)

    response = await sign_in.ask("Bearer old key")

    assert response.status_code == 401
    assert "expired" in response.json()["error"]["message"]
    assert 'error="invalid_token"' in response.headers["www-authenticate"]
    assert sign_in.counted('codec_auth_failures_total{reason="expired"}') == 1


async def test_challenge_without_a_credential_names_no_error() -> None:
    response = await SignIn(TOKEN).ask()

    assert "error" not in response.headers["www-authenticate"]


async def test_failures_are_counted_by_kind() -> None:
    sign_in = SignIn(TOKEN)
    await sign_in.ask()
    await sign_in.ask("Bearer wrong")
    await sign_in.ask("Basic wrong")
    await sign_in.ask("Bearer wrong too")

    assert sign_in.counted('codec_auth_failures_total{reason="missing"}') == 1
    assert sign_in.counted('codec_auth_failures_total{reason="unknown"}') == 2
    assert sign_in.counted('codec_auth_failures_total{reason="malformed"}') == 1


async def test_guessing_is_slowed_down_for_its_address_only(keys: Path) -> None:
    sign_in = SignIn(TOKEN, keys)
    for n in range(FAILURES_AT_ONCE):
        assert (await sign_in.ask(f"Bearer guess {n}")).status_code == 401

    refused = await sign_in.ask("Bearer guess")

    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    # A short token could be found by trying: from there even the right one is not looked at.
    assert (await sign_in.ask(f"Bearer {TOKEN}")).status_code == 429
    assert (await sign_in.ask(f"Bearer {TOKEN}", peer="10.0.0.2")).status_code == 200
    assert sign_in.counted('codec_requests_limited_total{limit="tries"}') == 2


async def test_who_holds_what_can_not_be_guessed_is_not_locked_out_by_a_neighbour(keys: Path) -> None:
    sign_in = SignIn(STRONG, keys)
    for n in range(FAILURES_AT_ONCE + 1):
        await sign_in.ask(f"Bearer guess {n}")

    assert (await sign_in.ask("Bearer laptop's key")).status_code == 200
    assert (await sign_in.ask(f"Bearer {STRONG}")).status_code == 200


async def test_request_without_a_credential_is_no_try() -> None:
    sign_in = SignIn(TOKEN)
    for _ in range(FAILURES_AT_ONCE + 1):
        assert (await sign_in.ask()).status_code == 401

    assert (await sign_in.ask(f"Bearer {TOKEN}")).status_code == 200


async def test_rate_of_a_key_is_held_with_429_and_a_time(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    KeyFile(path).add(KeyRecord("a", digest_of("key"), NOW, rate=2))
    now = 0.0
    sign_in = SignIn(None, path, limiter=Limiter(lambda: now))
    assert [(await sign_in.ask("Bearer key")).status_code for _ in range(3)] == [200, 200, 429]

    refused = await sign_in.ask("Bearer key")

    assert refused.headers["retry-after"] == "30"
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert sign_in.counted('codec_requests_limited_total{limit="rate"}') == 2
    now += 30.0
    assert (await sign_in.ask("Bearer key")).status_code == 200


async def test_concurrency_of_a_key_is_held_while_requests_run(tmp_path: Path) -> None:
    sign_in = one_at_a_time(tmp_path)
    sign_in.endpoint.hold = anyio.Event()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sign_in.ask, "Bearer key")
        with anyio.fail_after(20):
            await sign_in.endpoint.entered.wait()
        second = await sign_in.ask("Bearer key")
        sign_in.endpoint.hold.set()

    assert second.status_code == 429
    assert (await sign_in.ask("Bearer key")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "headers", "passes"),
    [
        ("POST", "/mcp", {}, True),
        ("POST", "/mcp/", {}, True),
        ("POST", "/sse", {}, True),
        ("POST", "/mcp", {"mcp_protocol_version": "2025-06-18"}, True),
        ("DELETE", "/mcp", {}, True),
        ("POST", "/mcp", {"mcp_protocol_version": "2026-07-28"}, False),
        ("PUT", "/mcp", {}, False),
        ("POST", "/v1/chat/completions", {}, False),
        ("DELETE", "/v1/responses/1", {}, False),
    ],
)
async def test_what_may_begin_nothing_passes_while_no_place_is_free_and_as_many_of_it(
    tmp_path: Path, method: str, path: str, headers: dict[str, str], passes: bool
) -> None:
    sign_in = one_at_a_time(tmp_path)
    sign_in.endpoint.hold, sign_in.endpoint.starts_nothing = anyio.Event(), True
    statuses: list[int] = []

    async def ask() -> None:
        statuses.append((await sign_in.ask("Bearer key", method=method, path=path, **headers)).status_code)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sign_in.ask, "Bearer key")
            await sign_in.endpoint.entered.wait()
            sign_in.endpoint.entered = anyio.Event()
            tasks.start_soon(ask)
            if passes:
                await sign_in.endpoint.entered.wait()
            await ask()
            sign_in.endpoint.hold.set()

    assert sorted(statuses) == [200 if passes else 429, 429]


async def test_request_that_ends_by_an_error_gives_its_place_back(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    KeyFile(path).add(KeyRecord("a", digest_of("key"), NOW, concurrency=1))
    calls = 0

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal calls
        calls += 1
        raise OSError("gone")

    sign_in = SignIn(None, path)
    sign_in.app = BearerAuth(broken, Credentials(keys=KeyRing(path)), sign_in.metrics.access)
    for _ in range(3):
        with pytest.raises(OSError, match="gone"):
            await sign_in.ask("Bearer key")

    assert calls == 3


@pytest.mark.parametrize(
    ("method", "headers", "kind"),
    [
        ("GET", {}, "stream"),
        ("POST", {"mcp_method": "subscriptions/listen", "mcp_protocol_version": "2026-07-28"}, "stream"),
        ("POST", {"mcp_method": "subscriptions/listen", "mcp_protocol_version": "2025-06-18"}, "call"),
        ("POST", {"mcp_method": "subscriptions/listen"}, "call"),
        ("POST", {"mcp_method": "tools/call", "mcp_protocol_version": "2026-07-28"}, "call"),
        ("DELETE", {}, "call"),
    ],
)
async def test_only_what_listens_leaves_the_place_of_a_call_free(
    tmp_path: Path, method: str, headers: dict[str, str], kind: str
) -> None:
    sign_in = one_at_a_time(tmp_path)
    sign_in.endpoint.hold = anyio.Event()
    statuses: list[int] = []
    answered = anyio.Event()

    async def call() -> None:
        statuses.append((await sign_in.ask("Bearer key")).status_code)
        answered.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: sign_in.ask("Bearer key", method=method, **headers))
        with anyio.fail_after(20):
            await sign_in.endpoint.entered.wait()
            sign_in.endpoint.entered = anyio.Event()
            tasks.start_soon(call)
            await (sign_in.endpoint.entered if kind == "stream" else answered).wait()
        sign_in.endpoint.hold.set()

    assert statuses == [200 if kind == "stream" else 429]


async def test_start_and_stop_of_the_application_ask_no_token() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    await BearerAuth(app, Credentials(TOKEN), Metrics().access)({"type": "lifespan"}, receive, send)

    assert seen == ["lifespan"]


async def test_state_of_the_server_is_kept_and_not_shared_between_requests() -> None:
    states: list[dict[str, Any]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        states.append(scope["state"])

    shared = {"pool": 1}
    sign_in = BearerAuth(app, Credentials(), Metrics().access)
    await sign_in({"type": "http", "method": "POST", "path": "/", "headers": [], "state": shared}, _never, _never)
    await sign_in({"type": "http", "method": "POST", "path": "/", "headers": []}, _never, _never)

    assert states == [{"pool": 1, PRINCIPAL: Principal("anonymous")}, {PRINCIPAL: Principal("anonymous")}]
    assert shared == {"pool": 1}


async def _never(*_: Any) -> Any:
    raise AssertionError("not asked")
