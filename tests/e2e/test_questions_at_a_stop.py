"""A gateway that is asked to stop lets calls finish that need something more of their clients, and begins nothing."""

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

from tests.e2e.conftest import RunningGateway
from tests.e2e.test_replicas import initialized, modern, post

pytestmark = pytest.mark.anyio

NO_ENGINE = ("--engine", "none")


async def stopping(gateway: RunningGateway) -> None:
    """Ask it to stop, and wait until it knows."""
    gateway.process.terminate()
    await anyio.to_thread.run_sync(gateway.log.wait_for, "stopping")


async def ended(gateway: RunningGateway) -> int:
    return await anyio.to_thread.run_sync(gateway.process.wait)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_call_whose_question_is_answered_after_the_stop_began_is_answered(
    start_gateway: Callable[..., RunningGateway], server: Callable[..., Any], mode: str
) -> None:
    gateway = start_gateway({"asks": server("asks")}, *NO_ENGINE)

    async def answer_when_it_stops(context: object, params: Any) -> ElicitResult:
        await stopping(gateway)
        async with httpx2.AsyncClient(timeout=240) as other:
            answer = await modern(other, gateway.url, {"name": "ask", "arguments": {"about": "new"}})
            assert "stopping" in answer["message"]
        return ElicitResult(action="accept", content={"text": "late"})

    with anyio.fail_after(60):
        async with (
            httpx2.AsyncClient(timeout=240) as http,
            Client(
                streamable_http_client(f"{gateway.url}/mcp", http_client=http),
                mode=mode,
                elicitation_callback=answer_when_it_stops,
            ) as client,
        ):
            # It would list them behind its first call.
            await client.list_tools()
            result = await client.call_tool("ask", {"about": "this"})
        assert await ended(gateway) == 0

    assert result.content[0].text == "late"
    assert gateway.log.events("stopped")[0]["requests_cut"] == 0


async def test_call_that_waits_for_its_client_is_cut_when_the_time_is_over(
    start_gateway: Callable[..., RunningGateway], server: Callable[..., Any]
) -> None:
    gateway = start_gateway({"asks": server("asks")}, *NO_ENGINE, env={"CODEC_GATEWAY_LIMITS__DRAIN": "0.3"})
    with anyio.fail_after(60):
        async with httpx2.AsyncClient(timeout=240) as http:
            parked = await modern(http, gateway.url, {"name": "ask", "arguments": {"about": "x"}})
            await stopping(gateway)
            assert await ended(gateway) == 0

    assert parked["resultType"] == "input_required"
    assert gateway.log.events("stopped")[0]["requests_cut"] == 1


async def test_client_whose_stream_ended_cancels_and_fetches_what_it_is_told_while_the_gateway_stops(
    start_gateway: Callable[..., RunningGateway], server: Callable[..., Any]
) -> None:
    env = {"CODEC_GATEWAY_SERVE__SSE_CLOSE_AFTER": "0.01"}
    gateway = start_gateway({"hangs": server("hangs")}, *NO_ENGINE, env=env)
    with anyio.fail_after(60):
        async with httpx2.AsyncClient(timeout=240) as http:
            session = await initialized(http, gateway.url)
            headers = {"accept": "application/json, text/event-stream", "mcp-session-id": session}
            # Its stream is closed early: the client is to come back for the answer.
            asked = await post(http, gateway.url, "tools/call", {"name": "say", "arguments": {}}, session)
            event_id = next(line[3:].strip() for line in asked.text.splitlines() if line.startswith("id:"))
            await stopping(gateway)
            begun = await post(http, gateway.url, "ping", {}, session)
            cancelling = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            taken = await http.post(f"{gateway.url}/mcp", json=cancelling, headers=headers)
            resumed = await http.get(f"{gateway.url}/mcp", headers={**headers, "last-event-id": event_id})
        assert await ended(gateway) == 0

    assert (begun.status_code, taken.status_code, resumed.status_code) == (503, 202, 200)
    assert "the request was cancelled" in resumed.text
    assert gateway.log.events("stopped")[0]["requests_cut"] == 0
