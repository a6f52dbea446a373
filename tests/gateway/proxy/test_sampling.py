"""Servers that ask for a generation: of the client where it can, else of our engine, as far as the operator allows."""

import sys
from pathlib import Path

import anyio
import pytest

from gateway.config.model import UpstreamConfig

pytestmark = pytest.mark.anyio
SERVERS = Path(__file__).parent / "servers"
ASK = {"ask": ["sampling/createMessage", {"messages": [], "maxTokens": 10}]}
OURS = {"role": "assistant", "content": {"type": "text", "text": "ours"}, "model": "tiny"}
THEIRS = {"role": "assistant", "content": {"type": "text", "text": "theirs"}, "model": "big"}


class Sampler:
    """Spends all that it may."""

    def __init__(self):
        self.most = []

    async def sample(self, params, most, payer):
        self.most.append(most)
        return OURS, most


@pytest.fixture
def sampler():
    return Sampler()


@pytest.fixture
def sampling(obeying, proxy_of, sampler):
    """Makes a proxy of one server that may spend so many tokens."""

    def make(tokens=25, **settings):
        return proxy_of(obeying(sampling_tokens=tokens, **settings), sampler=sampler)

    return make


@pytest.mark.parametrize("modern", [False, True])
async def test_engine_generates_where_the_client_can_not(sampling, sampler, client, call, modern):
    async with sampling() as proxy:
        result = await call(proxy, client(modern=modern), **ASK)

    assert result["answer"] == OURS
    assert sampler.most == [10]


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}])
async def test_engine_generates_for_the_agents_own_calls_and_beside_other_abilities(
    sampling, sampler, client, call, capabilities
):
    async with sampling() as proxy:
        with anyio.fail_after(20):
            agents = await proxy.call("up__do", ASK)
        clients = await call(proxy, client(**capabilities), **ASK)

    assert agents["structuredContent"]["answer"] == clients["answer"] == OURS
    assert sampler.most == [10, 10]


async def test_client_that_can_generate_is_asked_itself(sampling, sampler, client, call):
    one = client(sampling={})
    one.answers["sampling/createMessage"] = THEIRS
    async with sampling() as proxy:
        result = await call(proxy, one, **ASK)

    assert result["answer"] == THEIRS
    assert sampler.most == []


async def test_modern_client_that_can_generate_is_asked_in_a_round(sampling, sampler, client):
    async with sampling() as proxy:
        with anyio.fail_after(20):
            params = {"name": "up__do", "arguments": ASK}
            first = await proxy.handle("tools/call", params, client(modern=True, sampling={}))

    assert [question["method"] for question in first["inputRequests"].values()] == ["sampling/createMessage"]
    assert sampler.most == []


async def test_server_that_spent_its_tokens_is_refused_by_name_and_so_is_nobody_else(
    obeying, proxy_of, sampler, client, call
):
    proxy = proxy_of(obeying("up", sampling_tokens=15), obeying("other", sampling_tokens=15), sampler=sampler)
    async with proxy:
        one = client()
        answers = [(await call(proxy, one, **ASK))["answer"] for _ in range(3)]
        others = (await call(proxy, one, "other__do", **ASK))["answer"]

    assert answers[:2] == [OURS, OURS]
    assert answers[2]["message"] == "server 'up' has no sampling tokens left (sampling_tokens)"
    assert others == OURS
    assert sampler.most == [10, 5, 10]


async def test_server_that_may_spend_nothing_is_not_told_that_it_can_ask_and_is_refused(
    sampling, sampler, client, call, noted
):
    async with sampling(0) as proxy:
        result = await call(proxy, client(), **ASK)

    # It was the client who refused.
    assert result["answer"] == {"code": -1, "message": "no"}
    assert sampler.most == []
    assert "initialize {}" in noted()


async def test_server_that_may_spend_something_is_told_so(sampling, noted):
    async with sampling():
        pass

    assert 'initialize {"sampling":{}}' in noted()


async def test_engine_that_takes_longer_than_a_call_may_costs_the_call_no_time(
    sampling, sampler, client, call, answered
):
    async def sample(params, most, payer):
        await anyio.sleep(1.2)
        return OURS, most

    sampler.sample = sample
    clients = client(), client(elicitation={})
    async with sampling(timeout=1.0, breaker_failures=0) as proxy:
        for each in clients:
            await answered(proxy, each)
        results = [await call(proxy, each, **ASK) for each in clients]

    assert [result["answer"] for result in results] == [OURS, OURS]


@pytest.mark.parametrize(("modern", "protocol"), [(False, "modern"), (True, "modern"), (False, "handshake")])
async def test_real_server_of_either_era_gets_its_generation(proxy_of, sampler, client, notes, modern, protocol):
    upstream = UpstreamConfig(
        name="talks",
        command=sys.executable,
        args=(str(SERVERS / "talks.py"), "stdio"),
        env={"NOTES": str(notes)},
        protocol=protocol,
        sampling_tokens=25,
    )
    proxy = proxy_of(upstream, sampler=sampler)
    async with proxy:
        with anyio.fail_after(20):
            result = await proxy.handle("tools/call", {"name": "talks__sample"}, client(modern=modern))

    assert result["content"][0]["text"] == "ours"
    assert sampler.most == [9]
