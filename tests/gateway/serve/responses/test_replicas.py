"""What is stored of an answer is reached through any replica, whatever names it; one that is gone is told as it is."""

import gzip
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from bench.processes import free_ports
from gateway.proxy.caller import Principal
from gateway.replicas.connected import Connected
from gateway.replicas.sealed_records import ReplicaKeys

pytestmark = pytest.mark.anyio

KEYS = ReplicaKeys([b"n" * 32])
ASKED = {"type": "mcp", "server_label": "up", "require_approval": "always"}
CALL = '<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'


class Pair:
    """Two replicas: what is asked lives in one, and is asked for at the other."""

    def __init__(self, owner: Any, other: Any, stop: AsyncExitStack) -> None:
        self.owner = owner
        self.other = other
        self._stop = stop

    async def end_owner(self) -> None:
        await self._stop.aclose()


@pytest.fixture
async def pair(responses_stage: Callable[..., Any]) -> AsyncGenerator[Pair]:
    async with AsyncExitStack() as stack, AsyncExitStack() as first:
        one, two = (Connected(KEYS, "127.0.0.1", port) for port in free_ports(2))
        owner = await stack.enter_async_context(responses_stage(replicas=one))
        other = await stack.enter_async_context(responses_stage(replicas=two))
        await first.enter_async_context(one.listening(owner.app))
        await stack.enter_async_context(two.listening(other.app))
        yield Pair(owner, other, first)


async def test_stored_response_is_told_listed_and_deleted_through_the_other(pair: Pair) -> None:
    made = await pair.owner.ask("Hello.", input="hi")
    path = f"/v1/responses/{made['id']}"
    told = await pair.other.http.get(path)
    items = await pair.other.http.get(f"{path}/input_items", params={"limit": "1"})
    deleted = await pair.other.http.delete(path)
    after = [await stage.http.get(path) for stage in (pair.owner, pair.other)]

    assert told.json() == made
    assert [item["content"][0]["text"] for item in items.json()["data"]] == ["hi"]
    assert deleted.json() == {"id": made["id"], "object": "response", "deleted": True}
    assert [(each.status_code, each.json()["error"]["code"]) for each in after] == [(404, "response_not_found")] * 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("named", ["previous", "answer", "question", "untyped"])
async def test_request_that_goes_on_is_answered_where_what_it_names_lives(pair: Pair, named: str, stream: bool) -> None:
    made = await pair.owner.ask("Hello.", input="hi")
    listed = (await pair.owner.http.get(f"/v1/responses/{made['id']}/input_items")).json()["data"]
    user = {"role": "user", "content": "And now?"}
    body: dict[str, Any] = {
        "previous": {"input": "And now?", "previous_response_id": made["id"]},
        "answer": {"input": [{"type": "item_reference", "id": made["output"][0]["id"]}, user]},
        "question": {"input": [{"type": "item_reference", "id": listed[0]["id"]}, user]},
        "untyped": {"input": [{"id": made["output"][0]["id"]}, user]},
    }[named]
    pair.owner.engine.texts = ["Here."]
    response = await pair.other.ask("Elsewhere.", **body, stream=stream)

    assert response["output"][0]["content"][0]["text"] == "Here."
    assert pair.other.engine.prompts == []
    # What comes of it lives there too.
    pair.owner.engine.texts = ["Again."]
    again = await pair.other.ask("Elsewhere.", input="Go on.", previous_response_id=response["id"], stream=stream)
    assert again["output"][0]["content"][0]["text"] == "Again."


async def test_body_that_came_compressed_is_sent_on_whole(pair: Pair) -> None:
    made = await pair.owner.ask("Hello.", input="hi")
    words = "ä" * 50_000
    body = json.dumps({"input": words, "model": "any", "previous_response_id": made["id"]}).encode()
    pair.owner.engine.texts = ["Here."]
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    answer = await pair.other.http.post("/v1/responses", content=gzip.compress(body), headers=headers)

    assert answer.status_code == 400
    assert "context" in answer.json()["error"]["message"], answer.text
    short = json.dumps({"input": "ä", "model": "any", "previous_response_id": made["id"]}).encode()
    answer = await pair.other.http.post("/v1/responses", content=gzip.compress(short), headers=headers)
    assert answer.status_code == 200, answer.text
    assert pair.owner.engine.prompts[-1].count("ä") == 1


async def asked_for(pair: Pair, **body: Any) -> tuple[list[Any], dict[str, Any]]:
    user = {"role": "user", "content": "hi"}
    (item,) = (await pair.owner.ask(CALL, input=[user], tools=[ASKED], **body))["output"][-1:]
    assert item["type"] == "mcp_approval_request"
    return [user, item], {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": True}


async def test_call_that_is_approved_through_both_is_made_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for stage in (pair.owner, pair.other):
        call_tool = stage.proxy.call_tool

        async def call_and_note(*args: Any, _call: Any = call_tool, **more: Any) -> Any:
            made.append("call")
            return await _call(*args, **more)

        monkeypatch.setattr(stage.proxy, "call_tool", call_and_note)
    items, yes = await asked_for(pair, store=False)
    for stage in (pair.other, pair.owner, pair.other):
        pair.owner.engine.texts = ["It says 42."]
        response = await stage.ask("It says 42.", input=[*items, yes], tools=[ASKED])
        assert [item["output"] for item in response["output"] if item["type"] == "mcp_call"] == ["It is 42."]

    assert made == ["call"]


async def test_question_that_was_answered_before_binds_a_conversation_to_nobody(pair: Pair) -> None:
    items, yes = await asked_for(pair, store=False)
    pair.owner.engine.texts = ["It says 42."]
    answered = await pair.other.ask("unwanted", input=[*items, yes], tools=[ASKED])
    await pair.end_owner()
    more = [*items, yes, *answered["output"], {"role": "user", "content": "Thanks."}]
    response = await pair.other.ask("Welcome.", input=more, tools=[ASKED])

    assert response["output"][-1]["content"][0]["text"] == "Welcome."


async def test_owner_that_is_gone_is_told_as_what_is_not_stored(pair: Pair) -> None:
    made = await pair.owner.ask("Hello.", input="hi")
    items, yes = await asked_for(pair)
    await pair.end_owner()
    path = f"/v1/responses/{made['id']}"
    gone = [await pair.other.http.get(path), await pair.other.http.delete(path)]
    before = await pair.other.refused(404, input="x", previous_response_id=made["id"])
    item = await pair.other.refused(404, input=[{"type": "item_reference", "id": made["output"][0]["id"]}])
    approved = await pair.other.refused(400, input=[*items, yes], tools=[ASKED])

    assert [(each.status_code, each.json()["error"]["code"]) for each in gone] == [(404, "response_not_found")] * 2
    assert (before["code"], before["param"]) == ("previous_response_not_found", "previous_response_id")
    assert (item["code"], item["param"]) == ("item_not_found", "input[0]")
    assert approved["param"] == "input[2].approval_request_id"
    assert "ask the model again" in approved["message"]
    assert pair.other.engine.prompts == []


async def test_what_is_somebody_elses_is_found_nowhere(pair: Pair) -> None:
    made = await pair.owner.ask("Hello.", input="hi")
    told: list[int] = []
    for owner, other in (("bob", "bob"), ("ann", "bob"), ("bob", "ann")):
        pair.owner.principal, pair.other.principal = Principal(owner), Principal(other)
        told.append((await pair.other.http.get(f"/v1/responses/{made['id']}")).status_code)

    assert told == [404, 404, 404]


async def test_thought_that_a_client_keeps_is_read_by_every_replica(pair: Pair) -> None:
    about: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    made = await pair.owner.ask("<think>Well.</think>Hello.", input="hi", **about)
    thought = {key: value for key, value in made["output"][0].items() if key != "content"}
    items = [{"role": "user", "content": "hi"}, thought, made["output"][1], {"role": "user", "content": "And now?"}]
    response = await pair.other.ask("Here.", input=items, **about)

    assert "input.reasoning.encrypted_content" not in response["codec"].get("ignored", ())
    assert "Well." in pair.other.engine.prompts[-1]


async def test_stream_whose_owner_ends_is_told_to_have_broken(pair: Pair) -> None:
    made = await pair.owner.ask("Hello.", input="hi")
    pair.owner.engine.texts, pair.owner.engine.holds = ["Here it comes."], anyio.Event()
    answers: list[Any] = []

    async def ask() -> None:
        body = {"input": "more", "previous_response_id": made["id"], "stream": True, "model": "any"}
        answers.append(await pair.other.http.post("/v1/responses", json=body))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        with anyio.fail_after(20):
            await pair.owner.engine.holds.wait()
            await pair.end_owner()

    blocks = answers[0].text.split("\n\n")
    last = json.loads(blocks[-2].split("data: ")[1])
    assert (last["type"], last["code"], last["sequence_number"]) == ("error", "server_error", len(blocks) - 2)
    assert "that held it broke" in last["message"]


async def test_owner_that_can_not_be_asked_for_now_is_no_response_that_is_not_stored(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await pair.owner.ask("Hello.", input="hi")
    monkeypatch.setattr("gateway.replicas.connected._MOST", 0)
    told = await pair.other.http.get(f"/v1/responses/{made['id']}")
    error = await pair.other.refused(503, input="x", previous_response_id=made["id"])

    assert (told.status_code, told.headers["retry-after"], told.json()["error"]) == (503, "2", error)
    assert (error["code"], error["message"][-9:]) == ("replica_busy", "try again")
