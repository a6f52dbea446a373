"""What a server asks as soon as a client's own session is open is answered before the client's first call is sent."""

import anyio
import pytest

from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
ROOTS = {"roots": [{"uri": "file:///work"}]}


class Slow:
    """A client that takes some turns of the loop to answer, as every client over a network does."""

    def __init__(self, client, answer):
        self.one = client(roots={})
        self.answer = answer
        self.one.asked = self.asked

    async def asked(self, method, _params):
        self.one.was_asked.append(method)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        return await self.answer()


async def text_of_a_call(proxy, one):
    with anyio.fail_after(60):
        result = await proxy.handle("tools/call", {"name": "up__do", "arguments": {}}, one)
    return result["content"][0]["text"]


@pytest.mark.parametrize("ping", ["ping", "no-ping"])
async def test_first_call_of_a_client_is_made_when_the_server_knows_its_roots(upstream, proxy_of, client, ping):
    async def answer():
        return ROOTS

    slow = Slow(client, answer)

    async with proxy_of(upstream("asks_first", ping)) as proxy:
        said = await text_of_a_call(proxy, slow.one)

    assert said == "file:///work"
    assert slow.one.was_asked == ["roots/list"]


async def test_client_that_never_answers_does_not_hold_up_its_call_for_good(upstream, proxy_of, client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.session.in_flight.MOST", 0.01)
    slow = Slow(client, anyio.sleep_forever)

    async with proxy_of(upstream("asks_first")) as proxy:
        said = await text_of_a_call(proxy, slow.one)

    assert said == ""


async def rounds_of_a_call(proxy, one, roots):
    """What a call says, and how often its modern client was asked for its roots."""
    params, asked = {"name": "up__do", "arguments": {}}, 0
    with anyio.fail_after(60):
        while (result := await proxy.handle("tools/call", params, one)).get("resultType") == "input_required":
            requests = result["inputRequests"].items()
            assert {question["method"] for _, question in requests} == {"roots/list"}
            asked += len(requests)
            answers = {key: {"roots": [{"uri": uri} for uri in roots]} for key, _ in requests}
            params = {**params, "requestState": result["requestState"], "inputResponses": answers}
    return result["content"][0]["text"], asked


@pytest.mark.parametrize("ping", ["ping", "no-ping"])
async def test_modern_client_is_asked_for_its_roots_in_a_round_of_its_first_call(upstream, proxy_of, client, ping):
    async with proxy_of(upstream("asks_first", ping)) as proxy:
        assert await rounds_of_a_call(proxy, client(modern=True, roots={}), ["file:///work"]) == ("file:///work", 1)


async def test_session_that_is_lent_again_asks_for_the_roots_of_its_next_client(upstream, proxy_of, client):
    async with proxy_of(upstream("asks_first")) as proxy:
        first = await rounds_of_a_call(proxy, client(modern=True, roots={}), ["file:///one"])
        second = await rounds_of_a_call(proxy, client(modern=True, roots={}), ["file:///two"])
        sessions = proxy.statuses()[0].sessions

    assert (first, second) == (("file:///one", 1), ("file:///two", 1))
    assert sessions == 2


async def test_session_that_was_told_roots_is_lent_to_no_other_principal(upstream, proxy_of, client):
    async with proxy_of(upstream("asks_first")) as proxy:
        for name in ("ann", "bob"):
            one = client(modern=True, principal=Principal(name), roots={})
            assert await rounds_of_a_call(proxy, one, [f"file:///{name}"]) == (f"file:///{name}", 1)
        assert proxy.statuses()[0].sessions == 3


async def test_server_gets_no_roots_when_nobody_can_be_asked(upstream, proxy_of, client, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.session.in_flight.MOST", 0.5)
    one = client(modern=True, roots={})

    async with proxy_of(upstream("asks_first")) as proxy:
        with anyio.fail_after(60):
            await proxy.handle("tools/list", {}, one)
            assert await rounds_of_a_call(proxy, one, ["file:///work"]) == ("file:///work", 1)
