"""What a server asks as soon as a client's own session is open is answered before the client's first call is sent."""

import anyio
import pytest

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
    monkeypatch.setattr("gateway.proxy.upstream.session.first_questions.MOST", 0.01)
    slow = Slow(client, anyio.sleep_forever)

    async with proxy_of(upstream("asks_first")) as proxy:
        said = await text_of_a_call(proxy, slow.one)

    assert said == ""
