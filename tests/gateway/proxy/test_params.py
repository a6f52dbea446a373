"""What no transport can carry fails in the caller's own path, and with it nothing else."""

import json

import anyio
import pytest

from gateway.proxy.transport.transport_interface import why_unwritable

pytestmark = pytest.mark.anyio


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


UNWRITABLE = [
    (json.loads('{"x": "\\ud800"}'), "half a surrogate pair"),
    ({"text": nested(400)}, "nested too deep"),
]


@pytest.mark.parametrize("fine", [{}, {"x": "\U0001f600"}, {"x": [2**70, 1.5, None]}, {"x": nested(200)}])
def test_what_json_can_hold_has_no_fault(fine):
    assert why_unwritable(fine) is None


@pytest.mark.parametrize(("arguments", "fault"), UNWRITABLE)
async def test_unwritable_arguments_fail_their_own_call_and_no_other(upstream, proxy_of, noted_words, arguments, fault):
    results = []

    async def call_slowly(proxy):
        results.append(await proxy.call("up__echo", {"wait": True}))

    async with proxy_of(upstream("waits"), tool_timeout=3600.0) as proxy, anyio.create_task_group() as tasks:
        with anyio.fail_after(20):
            tasks.start_soon(call_slowly, proxy)
            await proxy.call("up__echo", {})
            refused = await proxy.call("up__echo", arguments)
            await proxy.call("up__echo", {"release": True})
        restarts = proxy.statuses()[0].restarts

    assert refused["isError"] is True
    assert "call of tool 'echo' of server 'up' failed: the request was not sent" in refused["content"][0]["text"]
    assert fault in refused["content"][0]["text"]
    assert results == [{"content": [{"type": "text", "text": "released"}]}]
    assert restarts == 0
    assert noted_words() == ["called"] * 3


async def test_deepest_arguments_that_pass_here_pass_on_the_wire(upstream, proxy_of):
    answers = []
    async with proxy_of(upstream("waits"), restart_backoff=3600.0) as proxy:
        for levels in range(235, 262):
            with anyio.fail_after(20):
                result = await proxy.call("up__echo", {"x": nested(levels)})
            answers.append("refused" if result["content"] else "passed")
        restarts = proxy.statuses()[0].restarts

    assert set(answers) == {"passed", "refused"}
    assert answers == sorted(answers)
    assert restarts == 0
