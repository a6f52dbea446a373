"""Users who sign in again while their requests are under way: those that did not begin are repeated."""

from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from gateway.config.overrides import ApprovalsConfig
from gateway.errors import RpcError
from gateway.proxy.caller import Nobody, Principal
from gateway.proxy.transport.oauth.grants import GrantKey, GrantStore

from .standin_accounts import standin_accounts

pytestmark = pytest.mark.anyio
ANN, BOB = Principal("ann", owner="key:a"), Principal("bob", owner="key:b")
PAGE = "http://127.0.0.1:8600/sign-in?server=docs"
LOOK = "gateway.proxy.transport.oauth.token_renewal._LOOK"
WHO = {"name": "docs__who", "arguments": {}}


@pytest.fixture
async def accounts(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with standin_accounts() as made:
        yield made
        assert made.mixed == []


async def call(proxy, caller):
    with anyio.fail_after(30):
        outcome = await proxy.call_tool(WHO, caller)
    return outcome.result["content"][0]["text"].strip()


def caller_of(principal):
    return Nobody(modern=False, principal=principal)


def is_call(asked):
    return asked.target == "/mcp" and asked.method == "POST" and asked.message.get("method") == "tools/call"


def forget_tokens_of(accounts, person):
    for token in [each for each, whose in accounts.whose.items() if whose == person]:
        accounts.valid.pop(token, None)


@asynccontextmanager
async def queued(proxy, accounts, request, *given):
    """A request that waits for its turn while the context lasts; its answers."""
    held, answers = anyio.Event(), []

    async def hold(asked, reply):
        if is_call(asked):
            accounts.before = None
            await held.wait()
        return False

    async def ask():
        try:
            answers.append(await request(proxy, *given))
        except RpcError as error:
            answers.append(str(error))

    accounts.before = hold
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, proxy, caller_of(BOB))
        await accounts.server.until(lambda: accounts.before is None)
        tasks.start_soon(ask)
        with anyio.fail_after(30):
            while proxy.statuses()[0].queued == 0:
                await anyio.lowlevel.checkpoint()
        yield answers
        held.set()


@asynccontextmanager
async def signed_in(proxy_of, accounts, **settings):
    """A gateway at which Ann and Bob have called already; the server takes one call at a time."""
    config = accounts.config(concurrency=1, **settings)
    async with proxy_of(config) as proxy:
        for principal in (ANN, BOB):
            await accounts.sign_in(principal.owner, principal.name)
            assert await call(proxy, caller_of(principal)) == principal.name
        yield proxy


async def test_call_whose_token_ended_with_the_next_sign_in_is_answered_with_that_one(accounts, proxy_of, monkeypatch):
    # The gateway does not look for another sign-in before the server refuses the token.
    monkeypatch.setattr(LOOK, 1e6)
    async with signed_in(proxy_of, accounts) as proxy:
        await accounts.sign_in("key:a", "amy")
        forget_tokens_of(accounts, "ann")

        assert await call(proxy, caller_of(ANN)) == "amy"
        assert await call(proxy, caller_of(ANN)) == "amy"


async def test_call_that_waited_while_its_user_signed_in_again_is_answered(accounts, proxy_of, monkeypatch):
    monkeypatch.setattr(LOOK, 0.0)
    async with signed_in(proxy_of, accounts) as proxy, queued(proxy, accounts, call, caller_of(ANN)) as answers:
        await accounts.sign_in("key:a", "amy")

    assert answers == ["amy"]
    # Nothing was sent without a token, or with the new one in the old session.
    assert all("authorization" in asked.headers for asked in accounts.server.asked if is_call(asked))


async def test_session_that_could_not_be_opened_after_the_next_sign_in_costs_no_call(
    accounts, proxy_of, client, monkeypatch
):
    monkeypatch.setattr(LOOK, 0.0)
    ann = client(principal=ANN)
    opened = signed_in(proxy_of, accounts, sessions="per_client")
    async with opened as proxy, queued(proxy, accounts, call, ann) as answers:
        await accounts.sign_in("key:a", "amy")

    assert answers == ["amy"]


async def test_resource_is_read_though_its_user_signed_in_again_meanwhile(accounts, proxy_of, monkeypatch):
    async def read(proxy):
        with anyio.fail_after(30):
            return await proxy.handle("resources/read", {"uri": "note:///ann"}, caller_of(ANN))

    monkeypatch.setattr(LOOK, 0.0)
    async with signed_in(proxy_of, accounts) as proxy, queued(proxy, accounts, read) as answers:
        await accounts.sign_in("key:a", "amy")

    assert [each["contents"][0]["text"] for each in answers] == ["read by amy"]


async def test_repeated_call_needs_the_approval_that_the_new_accounts_tool_asks_for(accounts, proxy_of, monkeypatch):
    monkeypatch.setattr(LOOK, 0.0)
    accounts.hints = {each: {"readOnlyHint": True} for each in ("ann", "bob")} | {"amy": {"destructiveHint": True}}
    async with signed_in(proxy_of, accounts) as proxy:
        await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("destructive", {})))
        async with queued(proxy, accounts, call, caller_of(ANN)) as answers:
            await accounts.sign_in("key:a", "amy")

    assert "Its calls need an approval" in answers[0]


async def test_call_that_may_have_run_is_not_repeated(accounts, proxy_of, monkeypatch):
    monkeypatch.setattr(LOOK, 0.0)
    calls = []

    async def drop(asked, reply):
        if is_call(asked):
            calls.append(asked)
            await accounts.sign_in("key:a", "amy")
            reply.drop()
            return True
        return False

    async with signed_in(proxy_of, accounts) as proxy:
        accounts.before = drop
        answer = await call(proxy, caller_of(ANN))

    assert "broke off" in answer
    assert len(calls) == 1


async def test_call_is_repeated_once_however_often_its_user_signs_in(accounts, proxy_of, monkeypatch):
    monkeypatch.setattr(LOOK, 1e6)
    calls = []

    async def refuse(asked, reply):
        if is_call(asked):
            calls.append(asked)
            await accounts.sign_in("key:a", f"amy{len(calls)}")
            forget_tokens_of(accounts, f"amy{len(calls) - 1}" if len(calls) > 1 else "ann")
        return False

    async with signed_in(proxy_of, accounts) as proxy:
        accounts.before = refuse
        answer = await call(proxy, caller_of(ANN))

    assert "another has taken its place: call again" in answer
    assert len(calls) == 2


async def test_call_that_waited_while_its_user_signed_out_says_where_to_sign_in(accounts, proxy_of, monkeypatch):
    monkeypatch.setattr(LOOK, 0.0)
    async with signed_in(proxy_of, accounts) as proxy, queued(proxy, accounts, call, caller_of(ANN)) as answers:
        GrantStore().delete(GrantKey("key:a", "docs", accounts.url))

    assert PAGE in answers[0]


async def test_scope_that_one_sign_in_lacks_is_not_asked_for_with_the_next(accounts, proxy_of, monkeypatch):
    monkeypatch.setattr(LOOK, 1e6)

    async def refuse(asked, reply):
        if is_call(asked):
            accounts.before = None
            await accounts.sign_in("key:a", "amy")
            await reply.whole(403, www_authenticate='Bearer error="insufficient_scope", scope="write"')
            return True
        return False

    async with signed_in(proxy_of, accounts) as proxy:
        accounts.before = refuse
        await call(proxy, caller_of(ANN))

    assert GrantStore().read(GrantKey("key:a", "docs", accounts.url)).missing is None


async def test_call_whose_first_round_ran_is_not_repeated(accounts, proxy_of, client, monkeypatch):
    monkeypatch.setattr(LOOK, 0.0)
    ann, calls = client(principal=ANN, elicitation={}), []
    ann.answers["elicitation/create"] = {"action": "accept", "content": {}}
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}

    async def ask(asked, reply):
        if is_call(asked):
            calls.append(asked)
            await accounts.sign_in("key:a", "amy")
            await reply.result(asked, {"resultType": "input_required", "inputRequests": {"a": question}})
            return True
        return False

    async with signed_in(proxy_of, accounts, sessions="shared") as proxy:
        accounts.before = ask
        answer = await call(proxy, ann)

    assert ann.was_asked
    assert "call again" in answer
    assert len(calls) == 1
