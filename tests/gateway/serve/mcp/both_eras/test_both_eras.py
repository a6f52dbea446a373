"""What servers ask and tell reaches their clients and comes back, whichever era and transport each of them speaks."""

import asyncio
from dataclasses import replace

import anyio
import mcp.types as t
import pytest

from gateway.config.overrides import ApprovalsConfig

pytestmark = pytest.mark.anyio


async def test_person_fills_in_a_form(meeting):
    meeting.person.questions.clear()

    assert await meeting.say("elicit") == "Ada"
    assert meeting.person.questions == ["who?"]


async def test_person_declines(meeting, monkeypatch):
    monkeypatch.setattr(meeting.person, "answer", t.ElicitResult(action="decline"))

    assert await meeting.say("elicit") == "decline"


async def test_clients_model_generates_for_the_server(meeting):
    meeting.person.questions.clear()

    assert await meeting.say("sample") == "Four."
    assert meeting.person.questions == ["2+2?"]


async def test_server_sees_the_clients_roots(meeting):
    assert await meeting.say("roots") == "file:///home"


async def test_one_call_asks_twice(meeting):
    meeting.person.questions.clear()

    assert await meeting.say("both") == "Ada Four."
    assert sorted(meeting.person.questions) == ["2+2?", "who?"]


async def test_questions_of_calls_at_the_same_time_are_all_answered(meeting):
    told = await asyncio.gather(*(meeting.say(tool) for tool in ("elicit", "sample", "elicit", "sample")))

    assert told == ["Ada", "Four.", "Ada", "Four."]


async def test_progress_comes_in_order_to_the_call_that_asked_for_it(meeting):
    heard = {"one": [], "other": []}

    async def count(name):
        async def take(progress, total, _):
            heard[name].append((progress, total))

        await meeting.say("count", progress_callback=take)

    await asyncio.gather(count("one"), count("other"))
    await meeting.soon(lambda: len(heard["one"]) == len(heard["other"]) == 3)

    assert heard["one"] == heard["other"] == [(1, 3), (2, 3), (3, 3)]


async def test_log_messages_come_that_are_as_severe_as_the_client_asked_for(meeting):
    meeting.person.logs.clear()
    if meeting.client_era == "handshake":
        await meeting.client.set_logging_level("info")
    await meeting.say("log")
    await meeting.soon(lambda: len(meeting.person.logs) >= 2)

    assert meeting.person.logs == [("info", "it is info"), ("error", "it is error")]


async def test_call_that_its_client_cancels_is_cancelled_at_the_server(meeting):
    before = meeting.noted("cancelled")
    calling = asyncio.create_task(meeting.say("hang"))
    await meeting.soon(lambda: meeting.noted("hangs") > before)
    calling.cancel()
    await asyncio.wait([calling])
    await meeting.soon(lambda: meeting.noted("cancelled") > before)

    assert await meeting.say("elicit") == "Ada"


async def test_changed_list_is_told_and_then_seen(meeting):
    before = len((await meeting.client.list_tools()).tools)
    if meeting.client_era == "modern":
        with anyio.fail_after(20):
            async with meeting.client.listen(tools_list_changed=True) as changes:
                await meeting.say("grow")
                await anext(aiter(changes))
    else:
        meeting.person.notices.clear()
        await meeting.say("grow")
        await meeting.soon(lambda: "notifications/tools/list_changed" in meeting.person.notices)

    assert len((await meeting.client.list_tools()).tools) == before + 1


async def test_changed_resource_is_told_to_who_subscribed(meeting):
    if meeting.client_era == "modern":
        with anyio.fail_after(20):
            async with meeting.client.listen(resource_subscriptions=["note:1"]) as changes:
                # A call of somebody else's: this client's own may run in another process, which has other subscribers.
                await meeting.proxy.call("talks__touch", {})
                change = await anext(aiter(changes))
        assert change.uri == "note:1"
    else:
        meeting.person.notices.clear()
        await meeting.client.subscribe_resource("note:1")
        await meeting.say("touch")
        await meeting.soon(lambda: "notifications/resources/updated" in meeting.person.notices)


@pytest.fixture
async def strict(meeting):
    """The operator wants every call approved."""
    before = meeting.proxy.config
    await meeting.proxy.reload(replace(before, approvals=ApprovalsConfig("always")))
    meeting.person.questions.clear()
    yield meeting
    await meeting.proxy.reload(before)


async def test_person_approves_a_call_before_the_server_hears_of_it(strict):
    assert await strict.say("elicit") == "Ada"
    assert [question.split("?")[0] for question in strict.person.questions] == [
        "May the tool 'talks__elicit' of server 'talks' be called",
        "who",
    ]


async def test_server_does_not_hear_of_a_call_that_the_person_does_not_approve(strict, monkeypatch):
    monkeypatch.setattr(strict.person, "answer", t.ElicitResult(action="decline"))

    refused = await strict.say("elicit")

    assert refused.startswith("refused: the tool 'talks__elicit' of server 'talks' was not called")
    assert len(strict.person.questions) == 1


async def test_calls_at_the_same_time_are_each_approved(strict):
    assert await asyncio.gather(*(strict.say("log") for _ in range(5))) == ["done"] * 5
    assert len(strict.person.questions) == 5
