"""The same load by the real `mcp` SDK, both of its modes: calls, and questions that it answers by itself.

It costs ten times what `clients.py` does, and shows an error where that one tries again: few clients are of this kind.
"""

import logging
import random
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

from tests.replicas.clients import Era, Tickets
from tests.replicas.ledger import ANSWERED, UNANSWERED, Call, Ledger
from tests.replicas.server import answer_of
from tests.replicas.site import SERVERS, TOKEN, now

_TIMEOUT = 45.0
# It logs what it raises, and more.
logging.getLogger("mcp").setLevel(logging.CRITICAL)
logging.getLogger("client").setLevel(logging.CRITICAL)


async def run(url: str, era: Era, ledger: Ledger, draw: random.Random, tickets: Tickets) -> None:
    """Make calls while there are tickets, with a new client whenever one has failed."""
    numbers = iter(tickets)
    while tickets.given < tickets.most:
        try:
            await _connected(url, era, ledger, draw, numbers)
        except* (
            MCPError,
            httpx2.HTTPError,
            OSError,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            TimeoutError,
        ):
            await anyio.sleep(0.1)


async def _connected(url: str, era: Era, ledger: Ledger, draw: random.Random, numbers: Any) -> None:
    asked: list[Call] = []

    async def answer(context: object, params: Any) -> ElicitResult:
        if params.message != str(asked[-1].number):
            asked[-1].wrong = f"the question of call {params.message}"
        return ElicitResult(action="accept", content={"text": f"yes to {params.message}"})

    async def note(response: httpx2.Response) -> None:
        if asked and response.status_code >= 400:
            asked[-1].refusals.append(f"{response.status_code} of {response.headers.get('x-replica')}")

    headers = {"authorization": f"Bearer {TOKEN}"}
    since = now()
    async with httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT, event_hooks={"response": [note]}) as http:
        transport = streamable_http_client(url, http_client=http)
        mode: Any = "legacy" if era == "2025" else "auto"
        async with Client(transport, mode=mode, elicitation_callback=answer) as client:
            await client.list_tools()
            for number in numbers:
                call = Call(number, era, draw.choice(["quick", "quick", "quick", "ask"]), since=since, began=now())
                asked.append(call)
                ledger.calls.append(call)
                if not await _called(client, call, draw):
                    return


async def _called(client: Client, call: Call, draw: random.Random) -> bool:
    """Make one call; gives whether its client is still of use."""
    server, word = f"s{draw.randrange(SERVERS)}", f"{draw.getrandbits(64):x}"
    told = f" and yes to {call.number}" if call.kind == "ask" else ""
    arguments = {"number": call.number, "word": word}
    call.kind = f"{call.kind} (SDK)"
    call.outcome = "SDK: its client broke off"
    try:
        with anyio.fail_after(_TIMEOUT):
            result: Any = await client.call_tool(f"{server}__{call.kind.split()[0]}", arguments)
        text = result.content[0].text
        call.outcome = f"error result: {text[:80]}" if result.is_error else ANSWERED
        if text != answer_of(server, call.number, word, told) and not result.is_error:
            call.wrong = f"{text!r:.200}"
    except MCPError as error:
        call.outcome = f"SDK: {str(error)[:60]}"
    except TimeoutError:
        call.outcome = f"no answer within {_TIMEOUT:g} s"
    except (httpx2.HTTPError, OSError):
        call.outcome = UNANSWERED
    finally:
        call.ended = now()
    return call.outcome == ANSWERED
