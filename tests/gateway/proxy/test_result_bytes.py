"""A result to which nothing is added reaches its client in the server's own bytes."""

from dataclasses import replace

import pytest

from gateway.protocol.messages import encode_response

pytestmark = pytest.mark.anyio
RESULT = (
    '{"content": [{"type":"text","text":"\\u00e9 \\/"}], "structuredContent":{"a":1.50e3,"b":0.12345678901234567890,'
    '"c":1E400,"d":-0,"e":123456789012345678901234567890}, "isError":false}'
)


@pytest.fixture
def numbers(upstream):
    """The server, with a result of these words."""

    def make(result: str):
        config = upstream("spells")
        return replace(config, env={**config.env, "RESULT": result}, protocol="handshake")

    return make


async def test_result_passes_in_the_bytes_in_which_it_came(numbers, proxy_of, client):
    async with proxy_of(numbers(RESULT)) as proxy:
        outcome = await proxy.call_tool({"name": "up__echo", "arguments": {}}, client())

    assert outcome.ended == "ok"
    assert encode_response("a", outcome.result) == b'{"jsonrpc":"2.0","id":"a","result":%b}' % RESULT.encode()


async def test_result_that_says_it_is_an_error_counts_as_one(numbers, proxy_of, client):
    async with proxy_of(numbers(RESULT.replace("false", "true"))) as proxy:
        outcome = await proxy.call_tool({"name": "up__echo", "arguments": {}}, client())

    assert outcome.ended == "tool_error"


async def test_result_of_the_other_era_has_what_that_demands_besides_its_own_values(numbers, proxy_of, client):
    result = RESULT.replace('"c":1E400,', "")
    async with proxy_of(numbers(result)) as proxy:
        outcome = await proxy.call_tool({"name": "up__echo", "arguments": {}}, client(modern=True))

    written = encode_response(1, outcome.result)
    assert b'"resultType":"complete"' in written
    assert b'"e":123456789012345678901234567890' in written
