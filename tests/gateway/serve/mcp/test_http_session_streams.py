"""The streams of a session over HTTP: taken up again, by the keys that hold their places, and outside of requests."""

import asyncio
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.serve.auth.api_keys import KeyFile, KeyRecord, KeyRing, digest_of
from gateway.serve.auth.bearer import BearerAuth, Credentials
from tests.gateway.serve.mcp.http_requests import curious, quiet, text

pytestmark = pytest.mark.anyio


async def test_client_that_lost_its_stream_gets_the_rest_of_it_by_the_last_event(servers, site_of):
    go_on = anyio.Event()

    async def slow(_, caller):
        for step in range(3):
            caller.notified("notifications/progress", {"progress": step})
        await go_on.wait()
        caller.notified("notifications/progress", {"progress": 3})
        return text("done")

    servers.tool(slow)
    async with site_of(servers) as site:
        session = await site.session()
        async with session.stream("tools/call", {"name": "slow"}) as stream:
            await stream.event()
        go_on.set()
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            events = await resumed.events()
        async with session.listen(**{"last-event-id": "1-4"}) as again:
            last = await again.events()

    assert [event.get("params", {}).get("progress") for event in events] == [1, 2, 3, None]
    assert resumed.ids == ["1-2", "1-3", "1-4", "1-5"]
    assert last == events[-1:]


def _with_one_place(folder):
    """Puts the check of a key before an endpoint, whose requests run one at a time."""

    def with_key(endpoint):
        KeyFile(folder / "keys").add(KeyRecord("a", digest_of("key"), datetime.now(UTC), concurrency=1))
        auth = BearerAuth(endpoint, Credentials(keys=KeyRing(folder / "keys")), Metrics().access)
        key = (b"authorization", b"Bearer key")
        return lambda scope, *ends: auth({**scope, "headers": [*scope["headers"], key]}, *ends)

    return with_key


async def test_request_that_goes_on_without_its_client_keeps_the_place_of_its_key(servers, site_of, tmp_path):
    go_on = anyio.Event()

    async def slow(_, caller):
        caller.notified("notifications/progress", {"progress": 0})
        await go_on.wait()
        return text("done")

    servers.tool(slow)
    async with site_of(servers, around=_with_one_place(tmp_path)) as site:
        session = await site.session()
        (live,) = site.endpoint._sessions.live()
        async with session.stream("tools/call", {"name": "slow"}) as stream:
            await stream.event()
        with anyio.fail_after(20):
            while live._streams[1].attached:
                await anyio.lowlevel.checkpoint()
        meanwhile = await session.post("ping", request_id=2)
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            go_on.set()
            events = await resumed.events()
        afterwards = await session.post("ping", request_id=2)

    assert (meanwhile.status_code, afterwards.status_code) == (429, 200)
    assert events == [{"jsonrpc": "2.0", "id": 1, "result": text("done")}]


@pytest.mark.parametrize("ends", ["notification", "delete"])
async def test_call_of_a_key_that_has_no_other_place_can_be_ended_all_the_same(servers, site_of, tmp_path, ends):
    began, cancelled = servers.hanging()
    async with site_of(servers, around=_with_one_place(tmp_path)) as site:
        session = await site.session()
        answers = []

        async def call():
            answers.append(await session.call("hang", 7))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await began.wait()
            another = await session.post("ping", request_id=8)
            if ends == "notification":
                ended = await session.post("notifications/cancelled", {"requestId": 7}, None)
            else:
                ended = await session.http.delete(site.url, headers=session.headers)
            await cancelled.wait()
        afterwards = await session.post("ping", request_id=8)

    assert (another.status_code, another.headers["retry-after"]) == (429, "1")
    assert (ended.status_code, afterwards.status_code) == ((202, 200) if ends == "notification" else (200, 404))
    assert answers[0].json()["error"]["code"] == -32800


async def test_key_that_has_no_place_begins_no_session(servers, site_of, tmp_path):
    began, cancelled = servers.hanging()
    async with site_of(servers, around=_with_one_place(tmp_path)) as site:
        session = await site.session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "hang", 7)
            await began.wait()
            with pytest.raises(AssertionError, match="too many requests at a time"):
                await site.session()
            await session.post("notifications/cancelled", {"requestId": 7}, None)
            await cancelled.wait()


@pytest.mark.parametrize("event_id", ["9-1", "1-9", "x", "1", "-", "1-x", "0-", "+1-1", "1" * 5000 + "-1"])
async def test_event_that_is_not_kept_is_a_bad_request(servers, site_of, event_id):
    async with site_of(servers) as site:
        session = await site.session()
        async with session.listen(**{"last-event-id": event_id}) as stream:
            await stream.response.aread()

    assert stream.response.status_code == 400


async def test_what_belongs_to_no_request_comes_by_the_get_stream(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        servers.change("tools")
        servers.change("tools")
        async with session.listen() as stream:
            first = await stream.event()
            servers.change("prompts")
            second = await stream.event()
        async with session.listen(**{"last-event-id": stream.ids[0]}) as resumed:
            again = await resumed.event()

    assert first == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert second == again == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}


async def test_change_of_a_server_that_a_client_may_not_see_is_not_told(servers, site_of):
    async with site_of(servers) as site:
        site.principal = Principal("ann", servers=frozenset({"two"}))
        session = await site.session()
        servers.change("tools", "one")
        servers.change("prompts", "two")
        async with session.listen() as stream:
            event = await stream.event()

    assert event["method"] == "notifications/prompts/list_changed"


async def test_change_of_somebody_elses_list_is_not_told(servers, site_of):
    async with site_of(servers) as site:
        site.principal = Principal("ann", owner="key:a")
        session = await site.session()
        servers.change("tools", owner="key:b")
        servers.change("prompts", owner="key:a")
        async with session.listen() as stream:
            event = await stream.event()

    assert event["method"] == "notifications/prompts/list_changed"


async def test_second_get_stream_takes_over_from_the_first(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        async with session.listen() as first, session.listen() as second:
            servers.change("tools")
            assert await first.events() == []
            assert (await second.event())["method"] == "notifications/tools/list_changed"


async def test_client_is_asked_outside_of_a_request_on_its_get_stream(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session(capabilities={"roots": {}})
        await session.call("quiet")
        (caller,) = servers.callers
        async with anyio.create_task_group() as tasks, session.listen() as stream:
            answered = asyncio.ensure_future(caller.session.asked("roots/list", {}))
            question = await stream.event()
            await session.answer(question["id"], {"roots": []})
            assert await answered == {"roots": []}
            tasks.cancel_scope.cancel()


async def test_question_fails_when_the_session_ends(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session(capabilities={"elicitation": {}})
        servers.tool(curious)
        async with session.stream("tools/call", {"name": "curious"}) as stream:
            await stream.event()
            (caller,) = servers.callers
            waiting = asyncio.ensure_future(caller.asked("elicitation/create", {}))
            await stream.event()
            await session.http.delete(site.url, headers=session.headers)
            with pytest.raises(RpcError, match="is gone"):
                await waiting
            with pytest.raises(RpcError, match="is gone"):
                await caller.asked("elicitation/create", {})
