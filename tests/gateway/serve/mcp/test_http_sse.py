"""Clients of the transport before Streamable HTTP at `/sse`: the official SDK's, and those that mean no good."""

import json
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest
from mcp import ClientSession, MCPError
from mcp.client.sse import sse_client
from mcp.types import ElicitResult

from gateway.proxy.caller import Principal
from gateway.replicas import ALONE, Replica

pytestmark = pytest.mark.anyio
ANN, BOB = Principal("ann"), Principal("bob")
TEXT = {"content": [{"type": "text", "text": "done"}]}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
GREETING = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def old_url(site, path="/sse"):
    return site.url.removesuffix("/mcp") + path


@asynccontextmanager
async def connected(site, path="/sse", **more):
    """The SDK's client."""
    async with sse_client(old_url(site, path)) as streams, ClientSession(*streams, **more) as session:
        yield session


class Raw:
    """A client that sees every byte."""

    def __init__(self, site, http, response):
        self.site, self.http = site, http
        self.lines = response.aiter_lines()
        self.place = ""

    async def event(self):
        """The kind and the data of the next event."""
        kind = "message"
        with anyio.fail_after(20):
            async for line in self.lines:
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    return kind, line.removeprefix("data: ")
        return None

    async def answer(self):
        _, data = await self.event()
        return json.loads(data)

    async def post(self, method, params=None, *, number=1, place=None, **more):
        body = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if number is not None:
            body["id"] = number
        return await self.http.post(old_url(self.site, place or self.place), **{"json": body, **more})

    async def greet(self):
        assert (await self.post("initialize", GREETING)).status_code == 202
        assert (await self.answer())["result"]["protocolVersion"] == "2024-11-05"


@asynccontextmanager
async def opened(site, path="/sse"):
    http = await site.http()
    async with http.stream("GET", old_url(site, path)) as response:
        assert response.status_code == 200, await response.aread()
        client = Raw(site, http, response)
        kind, client.place = await client.event()
        assert kind == "endpoint"
        yield client


async def test_client_of_the_official_sdk_lists_and_calls(servers, site_of):
    @servers.tool
    async def say(params, caller):
        caller.notified("notifications/message", {"level": "info", "data": "working"})
        return TEXT

    logs = []

    async def log(params):
        logs.append(params.data)

    async with site_of(servers) as site, connected(site, logging_callback=log) as session:
        greeting = await session.initialize()
        listed = await session.list_tools()
        result = await session.call_tool("say", {"a": 1})
        await session.send_ping()
        with pytest.raises(MCPError):
            await session.call_tool("unknown", {})

    assert greeting.instructions == "be kind"
    assert listed.tools == []
    assert result.content[0].text == "done"
    assert logs == ["working"]


async def test_client_is_asked_on_its_stream_and_answers_while_its_call_runs(servers, site_of):
    @servers.tool
    async def ask(params, caller):
        answer = await caller.asked("elicitation/create", {"message": "name?", "requestedSchema": SCHEMA})
        return {"content": [{"type": "text", "text": answer["content"]["name"]}]}

    async def fill_in(_, params):
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with site_of(servers) as site, connected(site, elicitation_callback=fill_in) as session:
        await session.initialize()
        with anyio.fail_after(20):
            result = await session.call_tool("ask", {})

    assert result.content[0].text == "Ada"


async def test_client_hears_that_a_list_has_changed(servers, site_of):
    async with site_of(servers) as site, opened(site) as client:
        await client.greet()
        servers.change("tools")
        told = await client.answer()

    assert told["method"] == "notifications/tools/list_changed"


async def test_path_names_a_view_and_messages_go_there(servers, site_of):
    servers.through_view = lambda principal, name: Principal(name) if name == "reading" else None
    async with site_of(servers) as site:
        async with opened(site, "/sse/reading") as client:
            await client.greet()
            await client.post("tools/list")
            await client.answer()
            elsewhere = await client.post("tools/list", place=client.place.replace("/sse/reading", "/sse"))
        unknown = await client.http.get(old_url(site, "/sse/nobody"))

    assert client.place.startswith("/sse/reading?session_id=")
    assert servers.callers[-1].principal == Principal("reading")
    assert elsewhere.status_code == 404
    assert unknown.status_code == 404


async def test_other_principal_learns_nothing_of_a_session_and_can_send_nothing_to_it(servers, site_of):
    async with site_of(servers) as site:
        site.principal = ANN
        async with opened(site) as client:
            await client.greet()
            site.principal = BOB
            theirs = await client.post("tools/list")
            unknown = await client.post("tools/list", place="/sse?session_id=" + "x" * 32)
            site.principal = ANN
            asked = len(servers.asked)
            await client.post("tools/list")
            await client.answer()

    assert (theirs.status_code, theirs.json()) == (unknown.status_code, unknown.json())
    assert theirs.status_code == 404
    assert asked == 0


@pytest.mark.parametrize(
    "place",
    ["/sse", "/sse?session_id=", "/sse?session_id=0", "/sse?session=x", "/sse?session_id=%00", "/sse?session_id=../.."],
)
async def test_session_can_not_be_guessed(servers, site_of, place):
    async with site_of(servers) as site, opened(site) as client:
        await client.greet()
        assert (await client.post("tools/list", place=place)).status_code == 404
        assert len(client.place) >= len("/sse?session_id=") + 32


async def test_sessions_of_both_transports_are_apart(servers, site_of):
    async with site_of(servers) as site, opened(site) as client:
        await client.greet()
        modern = await site.session()
        new_id, old_id = modern.headers["mcp-session-id"], client.place.partition("=")[2]
        at_old = await client.post("tools/list", place=f"/sse?session_id={new_id}")
        at_new = await modern.post("tools/list", **{"mcp-session-id": old_id})

    assert (at_old.status_code, at_new.status_code) == (404, 404)


async def test_body_over_the_limit_is_refused_however_it_comes(servers, site_of):
    async def pieces():
        for _ in range(200):
            yield b" " * 1000

    head = {"content-type": "application/json"}
    async with site_of(servers) as site, opened(site) as client:
        await client.greet()
        announced = await client.post("tools/list", json=None, content=b" " * 200_000, headers=head)
        endless = await client.post("tools/list", json=None, content=pieces(), headers=head)
        form = await client.post("tools/list", json=None, content=b"{}", headers={"content-type": "text/plain"})
        broken = await client.post("tools/list", json=None, content=b"{", headers=head)
        batch = await client.post("tools/list", json=[{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * 2)

    statuses = [each.status_code for each in (announced, endless, form, broken, batch)]
    assert statuses == [413, 413, 415, 400, 400]


async def test_sessions_without_end_take_no_more_than_their_share(servers, site_of):
    async with site_of(servers, max_sessions=8) as site:
        site.principal = ANN
        http = await site.http()
        async with opened(site), opened(site):
            refused = await http.get(old_url(site))
            site.principal = BOB
            async with opened(site):
                pass
        site.principal = ANN
        await servers.until(lambda: len(servers.ended) == 3)
        async with opened(site):
            pass

    assert refused.status_code == 429
    assert "'ann' already has 2 of the 8 sessions" in refused.json()["error"]["message"]


async def test_nothing_is_served_before_initialize_and_no_second_one(servers, site_of):
    async with site_of(servers) as site, opened(site) as client:
        await client.post("tools/list")
        early = await client.answer()
        await client.post("initialize", {})
        bad = await client.answer()
        await client.greet()
        await client.post("initialize", GREETING)
        again = await client.answer()
        wrong = await client.http.delete(old_url(site, client.place))

    assert "send initialize first" in early["error"]["message"]
    assert "needs params.protocolVersion" in bad["error"]["message"]
    assert "already initialized" in again["error"]["message"]
    assert servers.asked == []
    assert wrong.status_code == 405


async def test_client_that_does_not_read_its_stream_can_ask_nothing_more(servers, site_of, monkeypatch):
    monkeypatch.setattr("gateway.serve.mcp.http_sse._UNREAD", 1_000_000)

    @servers.tool
    async def much(params, caller):
        return {"content": [{"type": "text", "text": "x" * 2_000_000}]}

    async with site_of(servers) as site, opened(site) as client:
        await client.greet()
        with anyio.fail_after(30):
            while (told := await client.post("tools/call", {"name": "much"})).status_code == 202:
                pass

    assert told.status_code == 429
    assert "read it first" in told.json()["error"]["message"]


async def test_request_counts_as_running_until_its_call_is_answered_and_ends_with_its_client(servers, site_of):
    began, cancelled = servers.hanging()
    running = []

    def around(endpoint):
        async def app(scope, receive, send):
            running.append(scope["method"])
            try:
                await endpoint(scope, receive, send)
            finally:
                running.remove(scope["method"])

        return app

    async with site_of(servers, around=around) as site:
        async with opened(site) as client:
            await client.greet()
            accepted = await client.post("tools/call", {"name": "hang"})
            await began.wait()
            during = list(running)
        with anyio.fail_after(20):
            await cancelled.wait()
        gone = await client.post("tools/list")

    assert accepted.status_code == 202
    assert during == ["GET", "POST"]
    assert gone.status_code == 404


async def test_call_is_cancelled_by_its_client(servers, site_of):
    began, cancelled = servers.hanging()
    async with site_of(servers) as site, opened(site) as client:
        await client.greet()
        await client.post("tools/call", {"name": "hang"}, number=7)
        await began.wait()
        await client.post("notifications/cancelled", {"requestId": 7}, number=None)
        with anyio.fail_after(20):
            await cancelled.wait()
        answer = await client.answer()

    assert (answer["id"], answer["error"]["code"]) == (7, -32800)


async def test_message_for_a_session_of_another_replica_is_sent_on_to_it(servers, site_of):
    forwarded = []

    class Elsewhere(type(ALONE)):
        def owner(self, purpose, name, principal, scope):
            return Replica("there", b"") if name == "theirs" else None

        async def forward(self, owner, scope, receive, send, broken=None):
            forwarded.append((owner.address, scope["path"], scope["query_string"]))
            await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

    async with site_of(servers, endpoint_with={"replicas": Elsewhere()}) as site, opened(site) as client:
        await client.greet()
        theirs = await client.post("tools/list", place="/sse?session_id=theirs")

    assert theirs.status_code == 202
    assert forwarded == [("there", "/sse", b"session_id=theirs")]
    assert servers.asked == []


async def test_id_of_a_running_request_is_not_taken_twice_on_a_stream_that_all_answers_share(servers, site_of):
    began, _ = servers.hanging()
    async with site_of(servers) as site, opened(site) as client, anyio.create_task_group() as tasks:
        await client.greet()
        tasks.start_soon(partial(client.post, "tools/call", {"name": "hang"}, number=7))
        await began.wait()
        await client.post("tools/list", number=7)
        twice = await client.answer()
        tasks.cancel_scope.cancel()

    assert (twice["id"], twice["error"]["code"]) == (7, -32600)
