"""Servers that ask for a generation: of the client that can, and of nobody else."""

import anyio
import pytest

pytestmark = pytest.mark.anyio
ASK = {"ask": ["sampling/createMessage", {"messages": [], "maxTokens": 10}]}
THEIRS = {"role": "assistant", "content": {"type": "text", "text": "theirs"}, "model": "big"}


async def test_client_that_can_generate_is_asked_itself(obeying, proxy_of, client, call):
    one = client(sampling={})
    one.answers["sampling/createMessage"] = THEIRS
    async with proxy_of(obeying()) as proxy:
        result = await call(proxy, one, **ASK)

    assert result["answer"] == THEIRS


async def test_modern_client_that_can_generate_is_asked_in_a_round(obeying, proxy_of, client):
    async with proxy_of(obeying()) as proxy:
        with anyio.fail_after(20):
            params = {"name": "up__do", "arguments": ASK}
            first = await proxy.handle("tools/call", params, client(modern=True, sampling={}))

    assert [question["method"] for question in first["inputRequests"].values()] == ["sampling/createMessage"]


async def test_server_whose_client_can_not_generate_is_not_told_that_it_can_ask(obeying, proxy_of, client, call, noted):
    async with proxy_of(obeying()) as proxy:
        result = await call(proxy, client(), **ASK)

    # It was the client who refused.
    assert result["answer"] == {"code": -1, "message": "no"}
    assert "initialize {}" in noted()
