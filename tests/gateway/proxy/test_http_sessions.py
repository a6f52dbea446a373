"""Sessions with servers over HTTP: one for all calls, a new one where a server forgot it, and none left behind."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import RpcError

pytestmark = pytest.mark.anyio
SCRIPT = Path(__file__).parent / "servers" / "http_forgets.py"
ASKS = {"elicitation": {}}


@pytest.fixture
def serving(notes) -> Iterator:
    """Runs the server; gives its configuration."""
    processes = []

    def run(*modes, **settings):
        environment = {**os.environ, "NOTES": str(notes)}
        process = subprocess.Popen([sys.executable, str(SCRIPT), *modes], stdout=subprocess.PIPE, env=environment)
        processes.append(process)
        port = int(process.stdout.readline())
        # A slow answer to the other era's question would be a second session, which is none of a client's.
        settings = {"protocol": "handshake", **settings}
        return UpstreamConfig(name="web", url=f"http://127.0.0.1:{port}/mcp", **settings)

    yield run
    for process in processes:
        with process:
            process.kill()


@pytest.fixture
def opened(noted):
    """How many sessions were opened, and how many ended by a DELETE."""
    return lambda: tuple(sum(line.startswith(word) for line in noted()) for word in ("open ", "delete "))


async def test_all_calls_of_all_clients_that_can_not_be_asked_use_one_session(
    serving, proxy_of, client, call, opened, soon
):
    async with proxy_of(serving()) as proxy:
        clients = [client() for _ in range(5)] + [client(modern=True) for _ in range(5)]
        for _ in range(5):
            await asyncio.gather(*(call(proxy, each, "web__do") for each in clients))
        assert opened() == (1, 0)

    await soon(lambda: opened() == (1, 1))


async def test_client_that_can_be_asked_has_a_session_of_its_own_which_ends_with_it(
    serving, proxy_of, client, call, opened, soon
):
    async with proxy_of(serving()) as proxy:
        one = client(**ASKS)
        sessions = {(await call(proxy, one, "web__do"))["session"] for _ in range(5)}
        assert opened() == (2, 0)
        proxy.session_ended(one)
        await soon(lambda: opened() == (2, 1))
        assert "session" in await call(proxy, client(), "web__do")

    assert len(sessions) == 1
    # The server may be slower than our patience with a farewell.
    await soon(lambda: opened() == (2, 2))


@pytest.mark.parametrize("capabilities", [{}, ASKS], ids=["shared", "own"])
async def test_session_that_the_server_forgot_is_opened_anew_once_and_the_call_runs_once(
    serving, proxy_of, client, call, opened, capabilities
):
    async with proxy_of(serving()) as proxy:
        one = client(**capabilities)
        before = await call(proxy, one, "web__do")
        await call(proxy, one, "web__forget")
        sessions = opened()[0]
        after = await call(proxy, one, "web__do")
        status = proxy.statuses()[0]

    assert after["runs"] == before["runs"] + 1
    assert after["session"] != before["session"]
    # The main one need not have been used; nobody else's is opened.
    assert sessions < opened()[0] <= sessions + 2
    assert status.restarts == 0


async def test_calls_at_the_same_time_that_find_their_session_forgotten_open_one_new_one(
    serving, proxy_of, client, call, opened
):
    async with proxy_of(serving()) as proxy:
        one = client()
        await call(proxy, one, "web__forget")
        answers = await asyncio.gather(*(call(proxy, one, "web__do") for _ in range(10)))

    assert sorted(answer["runs"] for answer in answers) == list(range(1, 11))
    assert opened()[0] == 2


async def test_server_that_forgets_every_session_at_once_gets_no_call_for_ever(serving, proxy_of, client, call, opened):
    async with proxy_of(serving("always"), restart_backoff=0.2) as proxy:
        with anyio.fail_after(20):
            text = await call(proxy, client(), "web__do")

    assert text.startswith("server 'web' broke off the call of tool 'do'")
    assert opened()[0] <= 3


async def test_lists_are_fetched_anew_from_a_server_that_forgot_the_session(serving, proxy_of, client, call):
    async with proxy_of(serving()) as proxy:
        one = client(**ASKS)
        await call(proxy, one, "web__forget")
        listed = await proxy.handle("tools/list", {}, one)

    assert [tool["name"] for tool in listed["tools"]] == ["web__do", "web__forget", "web__fails"]


def error_of(code: int, words: str, number: str = "$ID") -> str:
    return f'{{"jsonrpc":"2.0","id":{number},"error":{{"code":{code},"message":"{words}"}}}}'


@pytest.mark.parametrize(
    "refusal",
    [
        "200:" + error_of(-32000, "Server not initialized"),
        "200:" + error_of(-32001, "Session terminated"),
        "200:" + error_of(-32002, "Server not initialized"),
        "200:" + error_of(-32005, "Session not found"),
        "200:" + error_of(-32600, "Bad request"),
        "200:" + error_of(-32603, "no session"),
        "400:" + error_of(-32000, "Bad Request: Server not initialized"),
        "400:" + error_of(-32001, "Session not found"),
        "400:" + error_of(-32600, "Missing session ID", "null"),
        "400:" + error_of(-32600, "Bad request", "null"),
        "400:Bad Request: No valid session ID provided",
        "400:" + error_of(-32000, "Not Found: Unknown Mcp-Session-Id header", "null"),
        "401:session expired",
        '403:{"error":"invalid session"}',
        "405:no such session",
        "409:the session was closed",
        "410:the session is gone",
        "419:session expired",
        "421:" + error_of(-32000, "session belongs to another replica", "null"),
        '422:{"detail":"session not found"}',
        "440:Login Timeout: the session has expired",
        "500:" + error_of(-32603, "Session not found", "null"),
        "503:Session not found",
    ],
)
async def test_lost_session_is_opened_again_and_the_call_repeated_however_it_is_told(
    serving, proxy_of, client, call, opened, refusal
):
    async with proxy_of(serving(f"unknown:{refusal}")) as proxy:
        one = client()
        assert (await call(proxy, one, "web__do"))["session"] == "s0"
        await call(proxy, one, "web__forget")
        again = await call(proxy, one, "web__do")
        assert opened()[0] == 2

    assert (again["session"], again["runs"]) == ("s1", 2)


@pytest.mark.parametrize(
    "refusal",
    [
        "503:could not get a database session from the pool",
        "400:" + error_of(-32000, "checkout session already paid"),
        "400:" + error_of(-32602, "could not initialize printer"),
        "401:upstream session cookie refused",
        "403:your session may not do that",
        "422:session length must be positive",
        "500:database session is closed",
    ],
)
async def test_refusal_that_names_a_session_runs_no_tool_twice_while_the_session_is_there(
    serving, proxy_of, client, opened, noted, refusal
):
    async with proxy_of(serving(f"fails:{refusal}")) as proxy:
        result = await proxy.handle("tools/call", {"name": "web__fails", "arguments": {}}, client())
        assert result["isError"]
        assert opened() == (1, 0)

    assert noted().count("fails") == 1


async def test_error_of_a_tool_that_names_a_session_is_the_tools_own(serving, proxy_of, client, opened, noted):
    async with proxy_of(serving()) as proxy:
        with pytest.raises(RpcError, match="the browser session has expired"):
            await proxy.handle("tools/call", {"name": "web__fails", "arguments": {}}, client())
        assert opened() == (1, 0)

    assert noted().count("fails") == 1


@pytest.mark.parametrize(
    "answer",
    [
        *(f'200:{{"jsonrpc":"2.0","id":$ID,"result":{result}}}' for result in ("[]", "null", '"pong"', "true")),
        "200:" + error_of(-32601, "no such method"),
        "200:" + error_of(-32000, "ping is not supported"),
        *(f"{status}:" for status in (200, 202, 405, 500, 501)),
        "200:pong",
        "400:no",
    ],
)
async def test_server_whose_answer_to_a_ping_is_odd_keeps_its_session(
    serving, proxy_of, client, call, opened, noted, until_noted, monkeypatch, answer
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance._PING_EVERY", 0.02)
    async with proxy_of(serving(f"ping:{answer}")) as proxy:
        if "-32601" in answer:
            await until_noted("ping", 3)
        else:
            await until_noted("lists", 4)
            assert noted().count("ping") == 1
        assert (await call(proxy, client(), "web__do"))["session"] == "s0"
        assert opened() == (1, 0)
        assert proxy.statuses()[0].restarts == 0
