"""A conversation of `/v1` is answered by one of several workers, whichever is asked, unless that is away."""

import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, cast

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bench.processes import free_ports
from gateway.app.worker_affinity import AtHome, home_of
from gateway.errors import NotAnswered
from gateway.proxy.caller import Principal
from gateway.replicas import ALONE, Replica, Replicas
from gateway.replicas.connected import Connected
from gateway.replicas.sealed_records import ReplicaKeys
from gateway.serve.http.request_parts import PRINCIPAL

pytestmark = pytest.mark.anyio

KEYS = ReplicaKeys([b"n" * 32])
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses")


class Workers:
    """Two workers, each an application that says which it is and what it was sent."""

    def __init__(self) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self.clients: list[httpx2.AsyncClient] = []
        self.connected: list[Connected] = []
        self.stops: list[AsyncExitStack] = []
        self.principal = Principal("ann")
        self.breaks = False

    async def start(self, number: int, stack: AsyncExitStack) -> None:
        host, _, port = self.addresses[number].rpartition(":")
        connected = Connected(KEYS, host, int(port))

        async def answer(request: Request) -> Response:
            body = await request.body()
            if not self.breaks:
                return JSONResponse({"worker": number, "size": len(body)})

            async def events() -> AsyncGenerator[bytes]:
                yield b"data: {}\n\n"
                raise OSError("the process is killed")

            return StreamingResponse(events(), media_type="text/event-stream")

        routes = [Route(path, answer, methods=["POST"]) for path in (*PATHS, "/v1/completions")]
        app = AtHome(Starlette(routes=routes), connected, self.addresses, 1_000_000)

        async def as_somebody(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = {PRINCIPAL: self.principal}
            await app(scope, receive, send)

        stop = await stack.enter_async_context(AsyncExitStack())
        await stop.enter_async_context(connected.listening(as_somebody))
        self.stops.append(stop)
        self.connected.append(connected)
        transport = httpx2.ASGITransport(app=as_somebody)
        http = httpx2.AsyncClient(transport=transport, base_url="http://localhost")
        self.clients.append(await stack.enter_async_context(http))

    async def asked(self, number: int, path: str, body: Any) -> Any:
        return (await self.clients[number].post(path, json=body)).json()

    async def homes(self, path: str, body: Any) -> set[int]:
        return {(await self.asked(number, path, body))["worker"] for number in range(2)}

    async def of_the_other(self) -> dict[str, Any]:
        """A conversation that is at home in the second worker."""
        for number in range(64):
            body = {"messages": [{"role": "user", "content": f"hi {number}"}]}
            if (await self.asked(1, PATHS[0], body))["worker"] == 1:
                return body
        raise AssertionError("the first worker is the home of all")


@pytest.fixture
async def workers() -> AsyncGenerator[Workers]:
    found = Workers()
    async with AsyncExitStack() as stack:
        for number in range(2):
            await found.start(number, stack)
        yield found


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.mark.parametrize("path", PATHS)
async def test_conversation_has_one_home_as_long_as_it_goes_on(workers: Workers, path: str) -> None:
    field = "input" if path == "/v1/responses" else "messages"
    seen: set[int] = set()
    for number in range(16):
        first = said("user", [{"type": "text", "text": f"Question {number}", "cache_control": {"type": "ephemeral"}}])
        turns = [said("system", "Be brief."), first, said("assistant", "Yes."), said("user", "And now?")]
        homes = await workers.homes(path, {field: turns[:2]})
        # What stands beside it and what comes behind changes nothing.
        plain = [said("system", "Today is Monday."), said("user", f"Question {number}"), *turns[2:]]
        homes |= await workers.homes(path, {field: plain, "tools": [], "model": "other"})
        assert len(homes) == 1
        seen |= homes

    assert seen == {0, 1}


async def test_text_is_the_same_question_as_an_item(workers: Workers) -> None:
    for number in range(8):
        alone = await workers.homes("/v1/responses", {"input": f"{number}"})
        assert alone == await workers.homes("/v1/responses", {"input": [said("user", f"{number}")]})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", []),
        ("/v1/chat/completions", {"messages": "x"}),
        ("/v1/chat/completions", {"messages": [said("assistant", "x")]}),
        ("/v1/chat/completions", {"messages": [said("user", "x")], "stream_format": "msgpack"}),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_x"}),
        ("/v1/responses", {"input": [{"type": "item_reference", "id": "msg_x"}, said("user", "x")]}),
        ("/v1/completions", {"prompt": "x", "messages": [said("user", "x")]}),
    ],
)
async def test_what_has_no_home_is_answered_where_it_comes(workers: Workers, path: str, body: Any) -> None:
    assert [(await workers.asked(number, path, body))["worker"] for number in range(2)] == [0, 1]


async def test_body_arrives_as_it_came(workers: Workers) -> None:
    body = await workers.of_the_other()
    sent = gzip.compress(json.dumps({**body, "more": "x" * 500_000}).encode())
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    told = (await workers.clients[0].post(PATHS[0], content=sent, headers=headers)).json()
    large = (await workers.clients[0].post(PATHS[0], content=b"x" * 3_000_000)).json()

    assert told == {"worker": 1, "size": len(sent)}
    assert large == {"worker": 0, "size": 3_000_000}


@pytest.mark.parametrize("how", ["stops", "is gone"])
async def test_worker_that_is_away_is_nobodys_home(workers: Workers, how: str) -> None:
    body = await workers.of_the_other()
    if how == "stops":
        workers.connected[1].leave()
    else:
        await workers.stops[1].aclose()

    assert (await workers.asked(0, PATHS[0], body))["worker"] == 0


@pytest.mark.parametrize(
    ("path", "last"), [*zip(PATHS, (b"[DONE]", b"overloaded_error", b"server_error"), strict=True)]
)
async def test_stream_that_breaks_off_says_so(workers: Workers, path: str, last: bytes) -> None:
    body = await workers.of_the_other()
    workers.breaks = True
    field = "input" if path == "/v1/responses" else "messages"
    with anyio.fail_after(20):
        answer = await workers.clients[0].post(path, json={field: body["messages"]})

    first, *rest = answer.content.split(b"\n\n")
    assert first == b"data: {}"
    assert b"held it broke" in rest[0]
    assert last in answer.content


class Broken:
    """Replicas of which the other one ends in the midst of a request."""

    def at(self, address: str, scope: Any) -> Replica:
        return Replica(address, b"")

    async def forward(self, *_: Any) -> None:
        raise NotAnswered("the replica that held it broke off", asked=True)


async def test_request_that_the_home_may_have_begun_to_answer_is_not_answered_again() -> None:
    app: Any = AtHome(Starlette(), cast("Replicas", Broken()), ["127.0.0.1:1", "127.0.0.1:2"], 1000)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as http:
        answer = await http.post(PATHS[0], json={"messages": [said("user", "x")]})

    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["error"]["code"] == "replica_lost"
    assert answer.json()["error"]["message"] == "the replica that held it broke off: ask again"


async def test_body_in_one_part_is_not_waited_for_any_longer() -> None:
    seen: list[Any] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        seen.append(await receive())

    async def receive() -> Any:
        # As a server may give it: what does not say that more follows is the end.
        given.append(1)
        assert len(given) == 1
        return {"type": "http.request", "body": b"{}"}

    given: list[int] = []
    scope = {"type": "http", "method": "POST", "path": PATHS[0], "headers": [], "state": {}}
    await AtHome(app, ALONE, ["127.0.0.1:1", "127.0.0.1:2"], 1000)(scope, receive, receive)

    assert seen == [{"type": "http.request", "body": b"{}"}]


@pytest.mark.parametrize("part", [["a text"], [None], [{"type": "image"}, {"text": "x"}]])
async def test_odd_parts_of_a_question_have_a_home_too(workers: Workers, part: Any) -> None:
    assert len(await workers.homes(PATHS[0], {"messages": [said("user", part)]})) == 1


def test_only_worker_is_the_home_of_all() -> None:
    assert home_of("ann", "x", 1) == 0
