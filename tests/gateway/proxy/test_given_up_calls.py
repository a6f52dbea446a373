"""What a server still says of a call that its caller gave up is for nobody who calls after it."""

import asyncio

import pytest

from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
LOG = ["notifications/message", {"level": "info", "data": "a secret"}]
ANN, BOB = Principal("ann"), Principal("bob")


@pytest.fixture
def give_up(call, until_noted):
    """Calls, waits until the server holds the call, and gives it up."""

    async def leave(proxy, one):
        calling = asyncio.create_task(call(proxy, one, hold=True))
        await until_noted("holds")
        calling.cancel()
        await asyncio.wait([calling])
        await until_noted("notifications/cancelled")

    return leave


@pytest.mark.parametrize("modern", [False, True])
async def test_log_message_of_a_call_that_was_given_up_reaches_nobody_who_calls_next(
    obeying, proxy_of, client, call, give_up, modern
):
    async with proxy_of(obeying(sessions="shared")) as proxy:
        ann, bob = client(modern=modern, principal=ANN), client(modern=modern, principal=BOB)
        bob.log_level = "debug"
        await give_up(proxy, ann)
        # The server writes of the first call while the second runs: nothing says which it means.
        await call(proxy, bob, push=[LOG])

    assert bob.heard == []
    assert ann.heard == []


async def test_call_that_ran_out_of_time_still_runs_for_its_server(obeying, proxy_of, client, call):
    async with proxy_of(obeying(sessions="shared")) as proxy:
        bob = client(principal=BOB)
        late = await proxy.call("up__do", {"hold": True}, timeout=0.1, caller=client(principal=ANN))
        await call(proxy, bob, push=[LOG])

    assert "did not answer" in late["content"][0]["text"]
    assert bob.heard == []


async def test_who_gave_up_a_call_hears_what_is_said_in_its_own_next_one(obeying, proxy_of, client, call, give_up):
    async with proxy_of(obeying(sessions="shared")) as proxy:
        ann = client(principal=ANN)
        await give_up(proxy, ann)
        await call(proxy, ann, push=[LOG])

    assert ann.heard == [tuple(LOG)]


async def test_once_the_server_answered_the_next_caller_hears_again(obeying, proxy_of, client, call, give_up):
    async with proxy_of(obeying(sessions="shared")) as proxy:
        ann, bob = client(principal=ANN), client(principal=BOB)
        await give_up(proxy, ann)
        # It answers the call that was held, and then this one.
        await call(proxy, bob, release=True, push=[LOG])
        first = list(bob.heard)
        await call(proxy, bob, push=[LOG])

    assert first == []
    assert bob.heard == [tuple(LOG)]


async def test_progress_is_told_under_the_token_of_a_call_that_runs_and_no_other(obeying, proxy_of, client):
    async with proxy_of(obeying(sessions="shared")) as proxy:
        bob = client(principal=BOB)
        pushes = [["notifications/progress", {"progress": 1, "progressToken": token}] for token in (True, 7, "mine", 1)]
        params = {"name": "up__do", "arguments": {"push": pushes}, "_meta": {"progressToken": "mine"}}
        await proxy.handle("tools/call", params, bob)

    # On our hop the call's token is 1.
    assert bob.heard == [("notifications/progress", {"progress": 1, "progressToken": "mine"})]
