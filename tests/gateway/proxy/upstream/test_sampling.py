"""What a server may spend of our engine, and who is asked the rest."""

import asyncio

import anyio
import pytest

from gateway.errors import RpcError
from gateway.proxy.caller import ANYBODY, Nobody, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.sampling import SAMPLING, Allowance

pytestmark = pytest.mark.anyio


class Sampler:
    """Spends what it is told to; waits where it is told to."""

    def __init__(self, cost: int = 0) -> None:
        self.cost = cost
        self.most: list[int] = []
        self.payers: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def sample(self, params, most, payer):
        self.most.append(most)
        self.payers.append(payer.name)
        await self.go_on.wait()
        if self.cost < 0:
            raise RpcError({"code": -32603, "message": "no engine"})
        return {"role": "assistant"}, self.cost


def allowance(tokens: int, sampler: Sampler | None) -> Allowance:
    return Allowance("up", tokens, ShareRule(0.25), sampler)


async def test_what_was_spent_is_gone_and_what_was_not_comes_back():
    budget = allowance(100, sampler := Sampler(30))
    await budget.spend({"maxTokens": 50}, ANYBODY)

    assert (sampler.most, budget.left) == ([50], 70)


@pytest.mark.parametrize("asked", [None, 0, -5, "9", 1000])
async def test_server_that_asks_for_more_or_for_nothing_in_particular_gets_what_is_left(asked):
    budget = allowance(100, sampler := Sampler(1))
    await budget.spend({"maxTokens": asked}, ANYBODY)

    assert sampler.most == [100]


async def test_generation_is_paid_for_before_it_runs_so_that_two_at_a_time_can_not_overspend():
    budget = allowance(100, sampler := Sampler(60))
    sampler.go_on.clear()
    first = asyncio.create_task(budget.spend({"maxTokens": 80}, ANYBODY))
    await anyio.wait_all_tasks_blocked()
    second = asyncio.create_task(budget.spend({"maxTokens": 80}, ANYBODY))
    await anyio.wait_all_tasks_blocked()
    sampler.go_on.set()
    await asyncio.gather(first, second)

    assert sampler.most == [80, 20]
    assert budget.left == -20


async def test_exhausted_allowance_is_refused_by_name_and_no_longer_offered():
    budget = allowance(10, Sampler(10))
    assert budget.open
    await budget.spend({"maxTokens": 10}, ANYBODY)

    assert not budget.open
    with pytest.raises(RpcError, match="server 'up' has no sampling tokens left"):
        await budget.spend({"maxTokens": 1}, ANYBODY)


async def test_generation_that_failed_or_was_cancelled_is_paid_for_all_the_same():
    budget = allowance(100, sampler := Sampler(-1))
    with pytest.raises(RpcError, match="no engine"):
        await budget.spend({"maxTokens": 40}, ANYBODY)
    sampler.cost = 0
    sampler.go_on.clear()
    with anyio.move_on_after(0.01):
        await budget.spend({"maxTokens": 40}, ANYBODY)

    assert budget.left == 20


async def test_without_an_engine_or_an_allowance_nothing_is_sampled():
    caller = Nobody(modern=False)

    assert allowance(100, None).with_sampling(caller) is caller
    assert allowance(0, Sampler()).with_sampling(caller) is caller


async def test_caller_that_can_sample_itself_is_left_alone():
    caller = Nobody(modern=True)
    caller.capabilities = {"sampling": {}}

    assert allowance(100, Sampler()).with_sampling(caller) is caller


async def test_caller_whom_the_engine_answers_offers_sampling_and_every_other_question_is_its_own():
    class Person(Nobody):
        async def asked(self, method, params):
            return {"asked": method}

    person = Person(modern=True, principal=Principal("ann"))
    person.capabilities = {"elicitation": {}}
    sampling_caller = allowance(100, Sampler()).with_sampling(person)

    assert sampling_caller.capabilities == {"elicitation": {}, "sampling": {}}
    assert await sampling_caller.asked(SAMPLING, {}) == {"role": "assistant"}
    assert await sampling_caller.asked("elicitation/create", {}) == {"asked": "elicitation/create"}
    assert (
        sampling_caller.modern,
        sampling_caller.principal.name,
        sampling_caller.session,
        sampling_caller.log_level,
    ) == (True, "ann", None, None)


async def test_one_key_can_cause_a_quarter_of_what_is_sampled_and_the_others_still_can():
    ann, bob = Principal("ann"), Principal("bob")
    budget = allowance(100, sampler := Sampler(20))
    await budget.spend({"maxTokens": 90}, ann)
    await budget.spend({}, ann)
    with pytest.raises(
        RpcError, match=r"'ann' already has 40 of the 100 .* its share is 25 \(limits.principal_share\)"
    ):
        await budget.spend({"maxTokens": 1}, ann)
    await budget.spend({"maxTokens": 90}, bob)

    assert sampler.most == [25, 5, 25]


async def test_generation_runs_on_behalf_of_whoever_pays():
    budget = allowance(100, sampler := Sampler(1))
    await budget.spend({}, Principal("ann"))

    assert sampler.payers == ["ann"]
