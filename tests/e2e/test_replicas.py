"""Two gateways that share a secret, behind a balancer that gives each request to the other one than before.

Whatever lives in one of them is reached through either: sessions, their streams and questions, calls that wait.
"""

import asyncio
import itertools
import resource
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

from bench.processes import free_port
from tests.e2e.conftest import RunningGateway, running_gateway

pytestmark = pytest.mark.anyio

SERVERS = Path(__file__).parent / "servers"


class Balancer(httpx2.AsyncBaseTransport):
    """Sends each request where it is told to."""

    def __init__(self, choose: Callable[[httpx2.Request], str]) -> None:
        self._choose = choose
        self._inner = httpx2.AsyncHTTPTransport()
        self.asked: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        there = httpx2.URL(self._choose(request))
        self.asked.append((str(there), request.method))
        request.url = request.url.copy_with(host=there.host, port=there.port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class TakingTurns(Balancer):
    """One without stickiness."""

    def __init__(self, urls: list[str]) -> None:
        turns = itertools.cycle(urls)
        super().__init__(lambda _: next(turns))


def started(
    stack: ExitStack, folder: Path, secret: Path, engine: str = "none", env: Mapping[str, str] | None = None
) -> RunningGateway:
    """`env`: more settings."""
    server = {"command": sys.executable, "args": [str(SERVERS / "asks.py")]}
    settings = {"ADDRESS": "127.0.0.1", "PORT": str(free_port()), "KEY_FILE": str(secret)}
    named = {**{f"REPLICAS__{name}": value for name, value in settings.items()}, **(env or {})}
    variables = {f"CODEC_GATEWAY_{name}": value for name, value in named.items()}
    folder.mkdir(exist_ok=True)
    return stack.enter_context(running_gateway(folder, {"asks": server}, "--engine", engine, env=variables))


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secret") / "key"
    path.write_text("0123456789abcdef" * 4)
    return path


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, secret: Path) -> Iterator[list[RunningGateway]]:
    with ExitStack() as stack:
        yield [started(stack, tmp_path_factory.mktemp(f"replica{n}"), secret) for n in range(2)]


async def says_yes(context: object, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"text": f"yes to {params.message}"})


@asynccontextmanager
async def client_of(urls: list[str], mode: str) -> AsyncGenerator[Client]:
    transport = TakingTurns(urls)
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(transport=transport, timeout=240) as http,
            Client(
                streamable_http_client("http://127.0.0.1:1/mcp", http_client=http),
                mode=mode,
                elicitation_callback=says_yes,
            ) as client,
        ):
            yield client
    assert len({url for url, _ in transport.asked}) == len(urls)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_finds_its_session_and_its_questions_whichever_replica_it_asks(
    replicas: list[RunningGateway], mode: str
) -> None:
    async with client_of([each.url for each in replicas], mode) as client:
        texts = [(await client.call_tool("ask", {"about": f"{n}"})).content[0].text for n in range(6)]
        names = [[tool.name for tool in (await client.list_tools()).tools] for _ in range(4)]

    assert texts == [f"yes to {n}" for n in range(6)]
    assert names == [["ask"]] * 4


async def initialized(http: httpx2.AsyncClient, url: str) -> str:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    answer = await post(http, url, "initialize", params)
    return answer.headers["mcp-session-id"]


async def post(
    http: httpx2.AsyncClient, url: str, method: str, params: dict[str, Any], session: str | None = None
) -> httpx2.Response:
    headers = {"accept": "application/json, text/event-stream"}
    if session is not None:
        headers["mcp-session-id"] = session
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await http.post(f"{url}/mcp", json=body, headers=headers)


async def test_session_ends_for_all_replicas_at_once(replicas: list[RunningGateway]) -> None:
    one, other = (each.url for each in replicas)
    async with httpx2.AsyncClient(timeout=240) as http:
        session = await initialized(http, one)
        before = await post(http, other, "ping", {}, session)
        ended = await http.delete(f"{other}/mcp", headers={"mcp-session-id": session})
        after = [await post(http, url, "ping", {}, session) for url in (one, other)]

    assert (before.status_code, before.json()["result"]) == (200, {})
    assert ended.status_code == 200
    assert [each.status_code for each in after] == [404, 404]


async def test_name_that_nobody_gave_is_unknown_everywhere(replicas: list[RunningGateway]) -> None:
    async with httpx2.AsyncClient(timeout=240) as http:
        session = await initialized(http, replicas[0].url)
        forged = session[:-4] + ("AAAA" if session[-4:] != "AAAA" else "BBBB")
        answers = [await post(http, each.url, "ping", {}, forged) for each in replicas]

    assert [each.status_code for each in answers] == [404, 404]


@pytest.fixture
def alone(tmp_path: Path, secret: Path) -> Iterator[Callable[[str], RunningGateway]]:
    with ExitStack() as stack:
        yield lambda name: started(stack, tmp_path / name, secret)


async def test_what_lived_in_a_replica_that_was_killed_is_told_to_be_gone(
    replicas: list[RunningGateway], alone: Callable[[str], RunningGateway]
) -> None:
    owner = alone("owner")
    asking = {"name": "ask", "arguments": {"about": "x"}}
    async with httpx2.AsyncClient(timeout=240) as http:
        session = await initialized(http, owner.url)
        parked = await modern(http, owner.url, asking)
        there = await post(http, replicas[0].url, "ping", {}, session)
        owner.process.kill()
        owner.process.wait()
        gone = await post(http, replicas[0].url, "ping", {}, session)
        answers = {key: {"action": "accept", "content": {"text": "late"}} for key in parked["inputRequests"]}
        lost = await modern(
            http, replicas[0].url, {**asking, "requestState": parked["requestState"], "inputResponses": answers}
        )

    assert there.status_code == 200
    assert gone.status_code == 404
    assert "send initialize again" in gone.json()["error"]["message"]
    # Where replicas are is the operator's to know.
    assert not any("127.0.0.1" in said for said in (gone.text, lost["message"]))
    replicas[0].log.wait_for("the replica that held it can't be reached")
    assert {each["address"] for each in replicas[0].log.events("the replica that held it can't be reached")} == {
        owner.log.events("listening for the other replicas")[0]["address"]
    }
    assert lost["code"] == -32602
    assert "send the request again without it" in lost["message"]


async def test_stream_through_a_replica_that_stops_ends_and_goes_on_through_another(
    replicas: list[RunningGateway], alone: Callable[[str], RunningGateway]
) -> None:
    between = alone("between")
    async with httpx2.AsyncClient(timeout=240) as http:
        session = await initialized(http, replicas[0].url)
        headers = {"accept": "text/event-stream", "mcp-session-id": session}
        async with http.stream("GET", f"{between.url}/mcp", headers=headers) as stream:
            between.process.terminate()
            # Whole: what is cut off raises here.
            await stream.aread()
        await anyio.to_thread.run_sync(between.process.wait)
        async with http.stream("GET", f"{replicas[1].url}/mcp", headers=headers) as again:
            assert (stream.status_code, again.status_code) == (200, 200)

    assert between.process.returncode == 0
    between.log.close()
    assert not [each for each in between.log.events("") if each["level"] == "error"]


@pytest.mark.parametrize("through", [(b'"tools/call"',), (b'"tools/call"', b'"result"')], ids=["call", "call, answer"])
async def test_call_through_a_replica_that_stops_is_waited_for(
    replicas: list[RunningGateway], alone: Callable[[str], RunningGateway], through: tuple[bytes, ...]
) -> None:
    between = alone("between")
    asked: list[str] = []
    refused: list[int] = []

    async def answer_when_it_stops(context: object, params: Any) -> ElicitResult:
        asked.append(params.message)
        between.process.terminate()
        await anyio.to_thread.run_sync(between.log.wait_for, "stopping")
        async with httpx2.AsyncClient(timeout=240) as other:
            session = await initialized(other, replicas[0].url)
            refused.append((await post(other, between.url, "ping", {}, session)).status_code)
        return ElicitResult(action="accept", content={"text": "late"})

    # A call, and what answers its question, goes through the one that stops, all else to the one that has the session.
    by_way = Balancer(
        lambda request: (between if any(each in request.content for each in through) else replicas[0]).url
    )
    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(transport=by_way, timeout=240) as http,
            Client(
                streamable_http_client("http://127.0.0.1:1/mcp", http_client=http),
                mode="legacy",
                elicitation_callback=answer_when_it_stops,
            ) as client,
        ):
            result = await client.call_tool("ask", {"about": "this"})
    await anyio.to_thread.run_sync(between.process.wait)

    assert (asked, result.content[0].text) == (["this"], "late")
    assert refused == [503]
    assert between.process.returncode == 0


def lowest_free_descriptor(pid: int) -> int:
    taken = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    return next(number for number in itertools.count() if number not in taken)


async def test_replica_without_descriptors_takes_no_session_for_gone(
    replicas: list[RunningGateway], alone: Callable[[str], RunningGateway]
) -> None:
    short = alone("short")
    async with httpx2.AsyncClient(timeout=240) as http:
        session = await initialized(http, replicas[0].url)
        # Its connection is there before: nobody else could come in.
        await initialized(http, short.url)
        soft, hard = resource.prlimit(short.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(short.process.pid, resource.RLIMIT_NOFILE, (lowest_free_descriptor(short.process.pid), hard))
        refused = await post(http, short.url, "ping", {}, session)
        resource.prlimit(short.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        served = await post(http, short.url, "ping", {}, session)

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    assert "try again" in refused.json()["error"]["message"]
    assert (served.status_code, served.json()["result"]) == (200, {})


async def modern(http: httpx2.AsyncClient, url: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result, or the error, of a call of 2026-07-28 by a client that can be asked."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": params["name"],
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
    answer = (await http.post(f"{url}/mcp", json=body, headers=headers)).json()
    return answer.get("result") or answer["error"]


async def test_port_of_the_replicas_answers_nobody_without_the_secret(replicas: list[RunningGateway]) -> None:
    port = int(replicas[0].log.events("listening for the other replicas")[0]["address"].rpartition(":")[2])
    greeting = b"codec-gateway replica 1\n" + b"x" * 36
    for said in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + b"x" * 100, greeting + b"\0" * 64):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        with anyio.fail_after(20):
            answered = await reader.read()
        writer.close()
        assert b"HTTP" not in answered


@pytest.mark.engine
async def test_responses_are_gone_on_with_and_deleted_whichever_replica_is_asked(tmp_path: Path, secret: Path) -> None:
    with ExitStack() as stack:
        two = [started(stack, tmp_path / f"{n}", secret, "embedded") for n in range(2)]
        turns = TakingTurns([each.url for each in two])
        async with (
            httpx2.AsyncClient(transport=turns, timeout=240) as http,
            openai.AsyncOpenAI(base_url="http://127.0.0.1:1/v1", api_key="x", max_retries=0, http_client=http) as api,
        ):
            # The balancer gives each request to the other one than before.
            about: dict[str, Any] = {"model": "any", "max_output_tokens": 4}
            made = [await api.responses.create(input="Hello.", **about)]
            for number in range(3):
                more = {"input": f"And {number}?", "previous_response_id": made[-1].id}
                made.append(await api.responses.create(**more, **about))
            told = [await api.responses.retrieve(each.id) for each in made for _ in range(2)]
            items = await api.responses.input_items.list(made[-1].id)
            await api.responses.delete(made[-1].id)
            for _ in range(2):
                with pytest.raises(openai.NotFoundError, match="there is no stored response"):
                    await api.responses.retrieve(made[-1].id)

    assert [each.id for each in told] == [each.id for each in made for _ in range(2)]
    assert [each["content"][0]["text"] for each in items.model_dump()["data"]] == ["And 2?"]
    # One conversation lives in one place, whoever is asked: nothing of it is read anew.
    prompts = [each.model_dump()["codec"]["prompt"] for each in made[1:]]
    assert all(0 < told["held"] <= told["reused"] for told in prompts), prompts
