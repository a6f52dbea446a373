"""Calls that need an approval, by clients of both eras: who is asked, and that nothing runs before."""

import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from gateway.config import UpstreamConfig
from gateway.config.overrides import ApprovalsConfig
from gateway.errors import RpcError
from gateway.proxy.caller import NOBODY, NOBODY_MODERN, Principal
from gateway.proxy.naming import usual_alias
from gateway.proxy.upstream.server_lists import ListCache

pytestmark = pytest.mark.anyio
HINTS = {"look": {"readOnlyHint": True}, "add": {"destructiveHint": False}, "wipe": {}}
OFFER = {"tools": [*HINTS], "hints": HINTS}
ASKS = {"elicitation": {}}
ANN, BOB = Principal("ann"), Principal("bob")
YES = {"action": "accept", "content": {}}


@pytest.fixture
def guarded(obeying, proxy_of):
    """A proxy whose operator wants to be asked before tools delete something."""

    @asynccontextmanager
    async def make(*upstreams, ask="destructive", search=False, tools=None, **limits):
        async with proxy_of(*(upstreams or (obeying(offer=OFFER),)), **limits) as proxy:
            await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig(ask, tools or {}), tool_search=search))
            yield proxy

    return make


async def answer(proxy, caller, name="up__wipe", arguments=None, **params):
    with anyio.fail_after(30):
        return await proxy.handle("tools/call", {"name": name, "arguments": arguments or {}, **params}, caller)


async def rounds(proxy, caller, first, response):
    state = {"requestState": first["requestState"], "inputResponses": dict.fromkeys(first["inputRequests"], response)}
    return await answer(proxy, caller, **state)


@pytest.mark.parametrize("caller", [NOBODY, NOBODY_MODERN], ids=["handshake", "modern"])
@pytest.mark.parametrize(
    ("ask", "run"),
    [
        ("never", {"look", "add", "wipe"}),
        ("destructive", {"look", "add"}),
        ("writes", {"look"}),
        ("always", set()),
    ],
)
async def test_where_nobody_can_be_asked_such_a_call_is_refused_with_the_reason(guarded, noted, ask, run, caller):
    async with guarded(ask=ask) as proxy:
        answers = {name: await answer(proxy, caller, f"up__{name}", {"path": "/x"}) for name in HINTS}

    assert {line for line in noted() if line.startswith("call ")} == {f"call {name}" for name in run}
    refused = [answers[name] for name in HINTS if name not in run]
    assert all(each["isError"] and "'up__" in each["content"][0]["text"] for each in refused)
    assert all('{"path": "/x"}' in each["content"][0]["text"] for each in refused)
    assert all(each.get("resultType") == ("complete" if caller.modern else None) for each in refused)


async def test_tool_named_by_the_operator_needs_what_is_written_there(guarded, noted):
    async with guarded(ask="never", tools={"up__look": "always", "up__*": "writes"}) as proxy:
        for name in HINTS:
            await answer(proxy, NOBODY, f"up__{name}")
        await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("always", {"up__wipe": "never"})))
        await answer(proxy, NOBODY, "up__wipe")

    assert [line for line in noted() if line.startswith("call ")] == ["call wipe"]


@pytest.mark.parametrize("search", [False, True], ids=["by its name", "by codec_call_tool"])
@pytest.mark.parametrize(("action", "ran"), [("accept", 1), ("decline", 0), ("cancel", 0), (None, 0), (True, 0)])
async def test_user_of_a_handshake_client_is_asked_before_the_call(guarded, client, noted, search, action, ran):
    one = client(**ASKS)
    one.answers["elicitation/create"] = {"action": action, "content": {"approve": True}}
    async with guarded(search=search) as proxy:
        inner = {"name": "up__wipe", "arguments": {}}
        called = await (answer(proxy, one, "codec_call_tool", inner) if search else answer(proxy, one))

    assert one.was_asked == ["elicitation/create"]
    assert noted().count("call wipe") == ran
    assert called.get("isError", False) == (not ran)


@pytest.mark.parametrize("search", [False, True], ids=["by its name", "by codec_call_tool"])
@pytest.mark.parametrize(("action", "ran"), [("accept", 1), ("decline", 0), ("cancel", 0), (None, 0)])
async def test_user_of_a_modern_client_is_asked_in_a_round_before_the_call(guarded, client, noted, search, action, ran):
    one = client(modern=True, principal=ANN, **ASKS)
    async with guarded(search=search) as proxy:
        name, arguments = ("codec_call_tool", {"name": "up__wipe"}) if search else ("up__wipe", {})
        first = await answer(proxy, one, name, arguments)
        before = noted().count("call wipe")
        state = {"requestState": first["requestState"]}
        responses = {key: {"action": action, "content": {}} for key in first["inputRequests"]}
        last = await answer(proxy, one, name, arguments, **state, inputResponses=responses)

    (request,) = first["inputRequests"].values()
    assert (first["resultType"], request["method"], before) == ("input_required", "elicitation/create", 0)
    assert noted().count("call wipe") == ran
    assert (last["resultType"], last.get("isError", False)) == ("complete", not ran)


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}, "roots": {}}, {"elicitation": {"url": {}}}])
async def test_client_that_shows_no_forms_is_not_asked(guarded, client, noted, modern, capabilities):
    one = client(modern=modern, **capabilities)
    async with guarded() as proxy:
        refused = await answer(proxy, one)

    assert "nobody can be asked" in refused["content"][0]["text"]
    assert one.was_asked == []
    assert "call wipe" not in noted()


async def test_client_that_can_not_ask_its_user_gets_a_refusal_with_what_it_said(guarded, client, noted):
    async with guarded() as proxy:
        refused = await answer(proxy, client(**ASKS))

    assert "the client could not ask its user: no" in refused["content"][0]["text"]
    assert "call wipe" not in noted()


@pytest.mark.parametrize("modern", [False, True])
async def test_nobody_waits_for_ever_for_an_answer(guarded, client, noted, monkeypatch, modern):
    monkeypatch.setattr("gateway.proxy.approvals._WAIT", 0.01)
    one = client(modern=modern, principal=ANN, **ASKS)

    async def think(*_):
        await anyio.sleep_forever()

    one.asked = think
    async with guarded() as proxy:
        last = first = await answer(proxy, one)
        if modern:
            with anyio.fail_after(30):
                while last.get("resultType") == "input_required":
                    await anyio.lowlevel.checkpoint()
                    last = await answer(proxy, one, requestState=first["requestState"])

    assert "nobody answered within 0.01 s" in last["content"][0]["text"]
    assert "call wipe" not in noted()


async def test_calls_that_wait_for_approval_take_no_place_at_their_server(guarded, obeying, client, noted):
    one, thinking, decided = client(**ASKS), anyio.Event(), anyio.Event()

    async def think(*_):
        thinking.set()
        await decided.wait()
        return YES

    one.asked = think
    narrow = obeying(offer=OFFER, concurrency=1, queue=0)
    async with guarded(narrow) as proxy, anyio.create_task_group() as tasks:
        tasks.start_soon(answer, proxy, one)
        await thinking.wait()
        parked = [await answer(proxy, client(modern=True, principal=ANN, **ASKS)) for _ in range(3)]
        others = [await answer(proxy, NOBODY, "up__look") for _ in range(3)]
        decided.set()

    assert all(each["resultType"] == "input_required" for each in parked)
    assert not any(each.get("isError") for each in others)
    assert [line for line in noted() if line.startswith("call ")] == ["call look"] * 3 + ["call wipe"]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("long", [{"text": "x" * 30_000}, {str(n): {} for n in range(100)}], ids=["long", "many"])
async def test_calls_that_wait_for_approval_take_no_more_memory_than_their_principals_share(
    guarded, client, noted, monkeypatch, modern, long
):
    monkeypatch.setattr("gateway.proxy.approvals._WAITING", 320_000)
    waiting, decided = [], anyio.Event()

    async def ask(number, principal):
        one = client(modern=modern, principal=principal, **ASKS)

        async def think(*_):
            waiting.append(number)
            await decided.wait()
            return YES

        one.asked = think
        return one, await answer(proxy, one, arguments={"n": number, **long})

    async def note(number):
        said.append((await ask(number, ANN))[1])

    async with guarded() as proxy:
        said = []
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(note, number)
            while len(said) + len(waiting) < 5:
                await anyio.lowlevel.checkpoint()
            refused = [each for each in said if each.get("isError")]
            asked = 5 - len(refused)
            decided.set()
        for each in (each for each in said if "requestState" in each):
            await rounds(proxy, client(modern=True, principal=ANN, **ASKS), each, YES)
        # What was decided makes room again, and nobody takes it from others.
        other, last = await ask(9, BOB)
        if modern:
            last = await rounds(proxy, other, last, YES)

    assert asked == 2
    assert all("bytes for calls that wait for an approval" in each["content"][0]["text"] for each in refused)
    assert not last.get("isError")
    assert noted().count("call wipe") == asked + 1


async def test_approval_makes_one_call_however_often_it_is_sent(guarded, client, noted):
    async with guarded() as proxy:
        first = await answer(proxy, client(modern=True, principal=ANN, **ASKS))
        outcomes = []

        async def again():
            try:
                outcomes.append(await rounds(proxy, client(modern=True, principal=ANN, **ASKS), first, YES))
            except RpcError as error:
                outcomes.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(again)
        await again()

    assert noted().count("call wipe") == 1
    assert sum(isinstance(each, dict) for each in outcomes) == 1


async def test_approval_is_for_what_was_asked_and_for_whom_it_was(guarded, client, noted):
    async with guarded() as proxy:
        first = await answer(proxy, client(modern=True, principal=ANN, **ASKS), arguments={"path": "/tmp"})
        with pytest.raises(RpcError, match="unknown or expired requestState"):
            await rounds(proxy, client(modern=True, principal=BOB, **ASKS), first, YES)
        responses = dict.fromkeys(first["inputRequests"], YES)
        other = {"requestState": first["requestState"], "inputResponses": responses}
        last = await answer(proxy, client(modern=True, principal=ANN, **ASKS), arguments={"path": "/"}, **other)

    assert last["structuredContent"]["params"]["arguments"] == {"path": "/tmp"}
    assert noted().count("call wipe") == 1


@pytest.mark.parametrize("state", ["", "x", "codec-gateway.", "codec-gateway.abc", "relayed.codec-gateway.x", 7, None])
@pytest.mark.parametrize("modern", [False, True])
async def test_state_that_no_question_gave_approves_nothing(guarded, client, noted, state, modern):
    one = client(modern=modern, principal=ANN, **(ASKS if modern else {}))
    given = {"requestState": state, "inputResponses": {"q1": YES}, "approved": True}
    async with guarded() as proxy:
        try:
            await answer(proxy, one, **given)
        except RpcError as error:
            assert "unknown or expired requestState" in error.message  # noqa: PT017

    assert "call wipe" not in noted()


async def test_tool_that_is_no_longer_offered_once_its_call_is_approved_is_not_called(guarded, client, noted):
    one = client(**ASKS)

    async def narrow(*_):
        one.principal = Principal("ann", tools=("up__look",))
        return YES

    one.asked = narrow
    async with guarded() as proxy:
        with pytest.raises(RpcError, match="unknown tool"):
            await answer(proxy, one)

    assert "call wipe" not in noted()


async def test_approved_call_may_still_ask_its_client_what_the_server_wants_to_know(guarded, client):
    one = client(modern=True, principal=ANN, **ASKS)
    orders = {"ask": ["elicitation/create", {"message": "really?"}]}
    async with guarded() as proxy:
        first = await answer(proxy, one, arguments=orders)
        second = await rounds(proxy, one, first, YES)
        last = await rounds(proxy, one, second, {"action": "accept", "content": {"sure": True}})

    assert [request["params"]["message"] for request in second["inputRequests"].values()] == ["really?"]
    assert last["structuredContent"]["answer"]["content"] == {"sure": True}


async def test_refused_call_is_counted_as_refused_and_named_in_the_last_calls(guarded, noted):
    async with guarded() as proxy:
        outcome = await proxy.call_tool({"name": "up__wipe"}, NOBODY)
        by_hand = await proxy.call_tool({"name": "up__wipe"}, NOBODY, approved=True)
        last = proxy.last_calls.of("up", "wipe")

    assert (outcome.ended, outcome.server, outcome.tool, by_hand.ended) == ("refused", "up", "wipe", "ok")
    assert sorted(each.ended for each in last) == ["ok", "refused"]
    assert noted().count("call wipe") == 1


@pytest.mark.parametrize("caller", [NOBODY, NOBODY_MODERN], ids=["handshake", "modern"])
@pytest.mark.parametrize("rule", ["alias", "up__wipe.all", "up__wipe.*"])
@pytest.mark.parametrize("called", ["alias", "up__wipe.all"])
@pytest.mark.parametrize("search", [False, True], ids=["by its name", "by codec_call_tool"])
async def test_rule_holds_for_a_tool_and_its_alias_whichever_of_them_it_names(
    guarded, obeying, noted, caller, rule, called, search
):
    async with guarded(obeying(offer={"tools": ["wipe.all"]}), search=search) as proxy:
        (tool,) = proxy.model_tools()
        rule, called = (tool.name if each == "alias" else each for each in (rule, called))
        await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("never", {rule: "always"}), safe_names=True))
        if search:
            refused = await answer(proxy, caller, "codec_call_tool", {"name": called})
        else:
            refused = await answer(proxy, caller, called)

    assert "its calls need an approval" in refused["content"][0]["text"].lower()
    assert "call wipe.all" not in noted()


async def test_server_can_not_free_a_tool_of_its_rule_by_another_tool_named_as_its_alias(guarded, obeying, noted):
    alias = usual_alias("up__wipe.all")
    both = {"tools": ["wipe.all", alias.removeprefix("up__")]}
    async with guarded(obeying(offer=both), ask="never", tools={alias: "always"}) as proxy:
        refused = [await answer(proxy, NOBODY, tool.name) for tool in proxy.model_tools()]

    assert all(each["isError"] for each in refused)
    assert not any(line.startswith("call ") for line in noted())


@pytest.mark.parametrize("way", ["sleeps", "ended", "earlier run"])
@pytest.mark.parametrize("guard", ["approvals", "pins"])
async def test_server_that_was_not_up_is_judged_by_what_it_lists_once_it_is(
    guarded, obeying, proxy_of, noted, soon, tmp_path, way, guard
):
    more = tmp_path / "more"
    more.write_text(json.dumps({"hints": {"wipe": {"readOnlyHint": True}}}))
    settings = {"sleeps": {"idle_stop": 0.2}, "ended": {}, "earlier run": {"start": "lazy"}}[way]
    pin = "off" if guard == "approvals" else "block"
    up = obeying(offer={"tools": ["wipe"], "more": str(more)}, pin=pin, **settings)
    ask = "destructive" if guard == "approvals" else "never"
    kept = ListCache(tmp_path / "lists")
    async with guarded(up, ask=ask, list_cache=kept) as proxy:
        await answer(proxy, NOBODY, arguments={"exit": 1} if way == "ended" else {})
        more.write_text(json.dumps({"hints": {"wipe": {}}}))
        if way != "earlier run":
            await soon(lambda: proxy.statuses()[0].state != "up" or noted().count("notifications/initialized") > 1)
            said = await said_to_a_call(proxy)
    if way == "earlier run":
        async with guarded(up, ask=ask, list_cache=kept) as proxy:
            said = await said_to_a_call(proxy)

    assert ("needs an approval" if guard == "approvals" else "is blocked") in said.replace("Its calls need", "needs")
    assert noted().count("call wipe") == 1


FORGETS = Path(__file__).parent / "servers" / "http_forgets.py"


@pytest.fixture(params=["worse"])
def forgetful(notes, request):
    """A server that annotates its tools as read-only until it has forgotten its sessions, as if it were restarted."""
    environment = {**os.environ, "NOTES": str(notes)}
    command = [sys.executable, str(FORGETS), request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        port = int(process.stdout.readline())
        yield UpstreamConfig(name="up", url=f"http://127.0.0.1:{port}/mcp", protocol="handshake", pin="off")
        process.kill()


@pytest.mark.parametrize("by_hand", [False, True], ids=["that needed none", "that was approved"])
@pytest.mark.parametrize("way", ["handshake", "modern", "handshake, asked", "modern, asked"])
async def test_call_that_is_repeated_on_a_restarted_server_is_judged_anew(guarded, forgetful, client, way, by_hand):
    caller = NOBODY_MODERN if way == "modern" else NOBODY
    if "asked" in way:
        # In a session of its own, since the server may ask it something.
        caller = client(modern="modern" in way, principal=ANN, **ASKS)
    async with guarded(forgetful) as proxy:
        await answer(proxy, caller, "up__do")
        await answer(proxy, caller, "up__forget")
        with anyio.fail_after(30):
            outcome = await proxy.call_tool({"name": "up__do", "arguments": {"path": "/x"}}, caller, approved=by_hand)
        said = outcome.result["content"][0]["text"]
        # Whoever approves it now knows what the server says of the tool.
        again = await proxy.call_tool({"name": "up__do"}, caller, approved=True)

    assert outcome.ended == "refused"
    assert "may delete or overwrite something" in said
    assert "restarted before it began" in said
    assert again.result["structuredContent"]["runs"] == 2


@pytest.mark.parametrize("forgetful", ["reads"], indirect=True)
@pytest.mark.parametrize("modern", [False, True])
async def test_call_on_a_forgotten_session_of_the_client_s_own_is_repeated_if_the_tool_still_only_reads(
    guarded, forgetful, client, modern
):
    caller = client(modern=modern, principal=ANN, **ASKS)
    async with guarded(forgetful) as proxy:
        await answer(proxy, caller, "up__do")
        await answer(proxy, caller, "up__forget")

        assert (await answer(proxy, caller, "up__do"))["structuredContent"]["runs"] == 2


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("worse", [1, 2, 9], ids=["once", "twice", "each time"])
async def test_user_is_asked_again_if_the_server_says_worse_of_the_tool_meanwhile(
    guarded, client, noted, monkeypatch, modern, worse
):
    one, asked = client(modern=modern, principal=ANN, **ASKS), []
    reasons = iter(["it may change something", *(f"it is worse by {number}" for number in range(worse))])
    reason = next(reasons)
    monkeypatch.setattr("gateway.proxy.approvals.why_asked", lambda *_: reason)

    def accept(message):
        nonlocal reason
        asked.append(message)
        reason = next(reasons, reason)
        return YES

    async def think(_method, params):
        return accept(params["message"])

    if not modern:
        one.asked = think
    async with guarded() as proxy:
        last = await answer(proxy, one)
        while last.get("resultType") == "input_required":
            (request,) = last["inputRequests"].values()
            last = await rounds(proxy, one, last, accept(request["params"]["message"]))

    assert len(asked) == min(worse + 1, 3)
    assert noted().count("call wipe") == (worse < 3)
    assert worse < 3 or "keeps changing" in last["content"][0]["text"]
    assert "It is worse by 0" in asked[1]


@pytest.mark.parametrize("modern", [False, True])
async def test_call_that_waits_for_approval_when_the_gateway_stops_never_runs(guarded, obeying, client, noted, modern):
    one, thinking = client(modern=modern, principal=ANN, **ASKS), anyio.Event()

    async def think(*_):
        thinking.set()
        await anyio.sleep_forever()

    if not modern:
        one.asked = think
    with anyio.fail_after(60):
        async with guarded() as proxy, anyio.create_task_group() as tasks:
            if modern:
                first = await answer(proxy, one)
            else:
                tasks.start_soon(answer, proxy, one)
                await thinking.wait()
            # The endpoint ends what it still serves.
            tasks.cancel_scope.cancel()
        async with guarded() as restarted:
            if modern:
                with pytest.raises(
                    RpcError, match=r"unknown or expired requestState.*: send the request again without it"
                ):
                    await rounds(restarted, one, first, YES)
                # Sent again, it is asked about again.
                assert (await answer(restarted, one))["resultType"] == "input_required"

    assert "call wipe" not in noted()


async def said_to_a_call(proxy):
    try:
        return (await answer(proxy, NOBODY))["content"][0]["text"]
    except RpcError as error:
        return error.message


async def test_call_on_a_client_s_own_session_is_judged_by_what_that_session_lists(
    guarded, obeying, client, noted, tmp_path
):
    more = tmp_path / "more"
    more.write_text(json.dumps({"hints": {"wipe": {"readOnlyHint": True}}}))
    one = client(**ASKS)
    async with guarded(obeying(offer={"tools": ["look", "wipe"], "more": str(more)}, pin="off")) as proxy:
        more.write_text(json.dumps({"hints": {"wipe": {}}}))
        await answer(proxy, one, "up__wipe")
        await proxy.handle("tools/list", {}, one)
        await answer(proxy, one, "up__wipe")
        await answer(proxy, NOBODY, "up__wipe")

    assert one.was_asked == ["elicitation/create"]
    assert noted().count("call wipe") == 2
