"""A server that does not take what is said of a conversation's cache loses no request by it."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from gateway.engine.interface import GenerateRequest, Retention
from gateway.engine.wire.vllm_client import Vllm
from gateway.errors import EngineRefused
from leaf_sdk.testing import tiny_map
from tests.gateway.engine.engines import HEAD, FakeEngine, address_of, collect

pytestmark = pytest.mark.anyio

TINY = tiny_map()
PLAIN = GenerateRequest([1, 2], None, 1)
TOLD = replace(PLAIN, retention=Retention("a1", continues=True, seconds=0.5))


@dataclass
class Server(FakeEngine):
    """Generates one id for whatever it does not refuse."""

    refuses: str = "vllm_xargs"
    """A field."""
    status: str = "422 Unprocessable Content"

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        self.bodies.append(asked)
        if self.refuses in asked:
            words = b'{"error": {"message": "extra_forbidden"}}'
            return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (self.status.encode(), len(words), words)
        told = {"choices": [{"token_ids": [5], "finish_reason": "length"}]}
        events = f"data: {json.dumps(told)}\n\ndata: [DONE]\n\n".encode()
        head = (HEAD.format(kind="text/event-stream") + "transfer-encoding: chunked\r\n\r\n").encode()
        return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(events), events)

    def told(self) -> list[bool]:
        """For each generation, whether it said what follows."""
        return ["vllm_xargs" in body for body in self.bodies]


def refusals(caplog: pytest.LogCaptureFixture) -> int:
    return sum("agentic_context" in str(record.msg) for record in caplog.records)


@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable Content"])
async def test_request_that_is_refused_is_sent_again_without_it_and_later_ones_do_not_try(
    caplog: pytest.LogCaptureFixture, status: str
) -> None:
    server = Server(TINY, status=status)
    async with address_of(server) as address:
        client = Vllm(address.url, at_once=2, token_map=TINY)
        answers = [await collect(client, request) for request in (TOLD, TOLD, PLAIN)]
        await client.aclose()

    assert [ids for ids, _ in answers] == [[5]] * 3
    assert server.told() == [True, False, False, False]
    assert refusals(caplog) == 1


async def test_request_that_is_refused_for_something_else_is_an_error_and_the_next_one_says_it_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(TINY, refuses="cache_salt")
    async with address_of(server) as address:
        client = Vllm(address.url, at_once=2, token_map=TINY)
        with pytest.raises(EngineRefused, match="extra_forbidden"):
            await collect(client, replace(TOLD, salt="s"))
        await collect(client, TOLD)
        await client.aclose()

    assert server.told() == [True, False, True]
    assert refusals(caplog) == 0


async def test_fault_of_the_server_is_no_refusal() -> None:
    server = Server(TINY, status="500 Internal Server Error")
    async with address_of(server) as address:
        client = Vllm(address.url, at_once=2, token_map=TINY)
        with pytest.raises(EngineRefused):
            await collect(client, TOLD)
        await client.aclose()

    assert server.told() == [True]
