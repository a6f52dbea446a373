"""How a session over HTTP ends: by its client, for want of use, and what becomes of its requests."""

import gc
import json
import weakref

import anyio
import anyio.lowlevel
import pytest

from tests.gateway.serve.mcp.http_requests import calling, quiet, send_batch

pytestmark = pytest.mark.anyio


async def test_deleted_session_is_gone_and_its_requests_with_it(servers, site_of):
    began, cancelled = servers.hanging()
    async with site_of(servers) as site:
        session = await site.session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call, "hang")
            await began.wait()
            deleted = await session.http.delete(site.url, headers=session.headers)
            with anyio.fail_after(20):
                await cancelled.wait()
        after = await session.post("tools/list")

    assert (deleted.status_code, after.status_code) == (200, 404)
    assert len(servers.ended) == 1


@pytest.mark.parametrize("is_batch", [False, True])
async def test_requests_of_a_deleted_session_are_answered_on_the_streams_that_they_began(servers, site_of, is_batch):
    began = anyio.Event()

    async def lingering(_, caller):
        caller.notified("notifications/progress", {"progress": 0})
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            # What a server is told when its caller goes takes a few turns.
            for _ in range(10):
                await anyio.lowlevel.cancel_shielded_checkpoint()

    servers.tool(lingering)
    async with site_of(servers) as site:
        session = await site.session("2025-03-26")
        async with anyio.create_task_group() as tasks:
            answers = []

            async def call():
                call = calling("lingering", 1)
                answers.append(await (send_batch(session, call) if is_batch else session.call("lingering")))

            tasks.start_soon(call)
            await began.wait()
            await session.http.delete(site.url, headers=session.headers)

    sent = [json.loads(line[6:]) for line in answers[0].text.splitlines() if line.startswith("data: {")]
    assert [message.get("error", {}).get("code") for message in sent] == [None, -32800]


async def test_message_whose_session_ended_while_its_body_came_is_for_no_session(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        session = await site.session()
        (live,) = site.endpoint._sessions.live()
        heard = live.times_heard
        body = json.dumps(session.body("tools/call", {"name": "quiet"})).encode()

        async def parts():
            yield body[:10]
            with anyio.fail_after(20):
                while live.times_heard == heard:
                    await anyio.lowlevel.checkpoint()
            await session.http.delete(site.url, headers=session.headers)
            yield body[10:]

        answer = await session.http.post(site.url, content=parts(), headers=session.headers)

    assert answer.status_code == 404
    assert servers.asked == []


async def test_session_whose_client_listened_is_freed_with_its_end_without_the_garbage_collector(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        (kept,) = map(weakref.ref, site.endpoint._sessions.live())
        gc.disable()
        try:
            async with session.listen() as stream:
                await session.http.delete(site.url, headers=session.headers)
                assert await stream.events() == []
            servers.ended.clear()
            with anyio.fail_after(20):
                while kept() is not None:
                    await anyio.lowlevel.checkpoint()
        finally:
            gc.enable()


async def test_session_that_nobody_uses_ends(servers, site_of, caplog):
    caplog.set_level("INFO")
    async with site_of(servers, session_idle=0.05) as site:
        session = await site.session()
        await servers.until(lambda: servers.ended)
        after = await session.post("tools/list")

    assert after.status_code == 404
    (line,) = [record.msg for record in caplog.records if "it was idle" in str(record.msg)]
    assert line["idle_seconds"] <= 20


async def test_session_with_a_running_request_or_an_open_stream_is_in_use(servers, site_of):
    began, _ = servers.hanging()
    async with site_of(servers, session_idle=1.0) as site, anyio.create_task_group() as tasks:
        # Each is used as soon as it is there, before it counts as idle.
        busy = await site.session()
        tasks.start_soon(busy.call, "hang")
        await began.wait()
        open_one = await site.session()
        async with open_one.listen():
            idle = await site.session()
            await servers.until(lambda: servers.ended)
            kept = [await session.post("ping") for session in (busy, open_one)]
            gone = await idle.post("ping")
        tasks.cancel_scope.cancel()

    assert [answer.status_code for answer in (*kept, gone)] == [200, 200, 404]


async def test_session_over_the_most_is_told_to_come_later(servers, site_of):
    async with site_of(servers, max_sessions=1) as site:
        session = await site.session()
        first = session.headers.pop("mcp-session-id")
        refused = await session.post("initialize", {"protocolVersion": "2025-11-25"})
        await session.http.delete(site.url, headers={**session.headers, "mcp-session-id": first})
        taken = await session.post("initialize", {"protocolVersion": "2025-11-25"})

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert taken.status_code == 200
