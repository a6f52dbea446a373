"""No server that an official SDK can use is unusable through the gateway.

Each odd server of the table is tried by the Python SDK through a gateway with many of them, and must give what the SDK
gets directly: `verdicts.json` says whether it gets the answer, the SDK's own model what it makes of it. Each fourth
server is tried directly, too, and in `make fuzz` all of them, behind one gateway: a merged list costs more with each
server, when any of them comes or goes.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from mcp.types import CallToolResult

from tests.cases import IN_FULL
from tests.odd_servers.behaviours import TABLES
from tests.odd_servers.clients import Outcome, try_all
from tests.odd_servers.gateway import (
    Names,
    config_of,
    first_tools,
    gateway_of,
    names_of,
    outcomes,
    raw_result,
    until_up,
)
from tests.odd_servers.http_server import OddHttp, odd_http
from tests.odd_servers.odd import Odd
from tests.odd_servers.verdicts import BEYOND, ELSEWHERE, read_verdicts, usable

pytestmark = [pytest.mark.anyio, pytest.mark.in_full, pytest.mark.timeout(900)]
VERDICTS = read_verdicts()
ENOUGH, HOPELESS = 120.0, 2.0
"""Seconds for a server that the SDK can use, and for one that it can't."""
PART = 1 if IN_FULL else 4
"""One of so many servers is tried directly, and so many gateways share all servers."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Sweep:
    """What the Python SDK got."""

    direct: dict[tuple[str, str], Outcome]
    """Of each server in turn of `PART`."""
    through: dict[tuple[str, str], Outcome]
    raw: dict[tuple[str, str], Any]
    """Results through the gateway as JSON, of servers that only the TypeScript SDK can use."""


def wanted() -> set[tuple[str, str]]:
    """The servers that one of the SDKs can use."""
    return {
        (transport, name)
        for transport, rows in VERDICTS.items()
        for name, row in rows.items()
        if any(usable(verdict) for verdict in row.values()) and name not in BEYOND
    }


@pytest.fixture(scope="module")
async def sweep() -> Sweep:
    logging.disable(logging.CRITICAL)
    try:
        async with odd_http(list(TABLES["http"].values())) as servers:
            direct = await try_all(
                servers,
                lambda *row: ENOUGH if usable(verdict_of(*row, "python")) else HOPELESS,
                {row for table in VERDICTS for row in [(table, name) for name in VERDICTS[table]][::PART]},
            )
        found = Sweep(direct, {}, {})
        async with odd_http(list(TABLES["http"].values())) as servers:
            names = list(names_of().items())
            with anyio.fail_after(600):
                async with anyio.create_task_group() as gateways:
                    for turn in range(PART):
                        gateways.start_soon(pass_through, servers, dict(names[turn::PART]), found)
    finally:
        logging.disable(logging.NOTSET)
    return found


async def pass_through(servers: OddHttp, names: Names, found: Sweep) -> None:
    """Note what the SDK gets through one gateway with these servers."""
    async with gateway_of(config_of(servers, names)) as (proxy, session):
        await until_up(proxy, {name for name, row in names.items() if row in wanted()})
        tools = await first_tools(session)
        through = await outcomes(session, tools, names)
        only = {each for each in tools if names[each] in wanted() and not usable(through[each].verdict)}
        found.through.update({names[name]: each for name, each in through.items()})
        found.raw.update({names[each]: await raw_result(proxy, tools[each]) for each in only})


def verdict_of(transport: str, name: str, sdk: str) -> str:
    return VERDICTS[transport][name][sdk]


def test_table_has_at_least_100_behaviours_of_either_transport_and_a_verdict_on_each() -> None:
    assert {transport: list(table) for transport, table in TABLES.items()} == {
        transport: list(rows) for transport, rows in VERDICTS.items()
    }
    assert all(len(table) >= 100 for table in TABLES.values())
    assert set(BEYOND) <= {name for table in TABLES.values() for name in table}


async def test_python_sdk_gets_directly_what_the_table_says(sweep: Sweep) -> None:
    verdicts = {row: outcome.verdict for row, outcome in sweep.direct.items()}
    assert verdicts == {row: verdict_of(*row, "python") for row in verdicts}
    got = {row: outcome for row, outcome in sweep.direct.items() if usable(outcome.verdict)}
    assert got == {row: meant_by(*row) for row in got}
    assert len(sweep.direct) >= 400 // PART


async def test_python_sdk_gets_the_same_through_the_gateway(sweep: Sweep) -> None:
    direct = {row: meant_by(*row) for row in wanted() if usable(verdict_of(*row, "python"))}
    through = {row: sweep.through.get(row) for row in direct}
    others = {row: (through[row], each) for row, each in direct.items() if through[row] != each}
    assert [*others] == [("http", ELSEWHERE)]
    assert all(through is not None and through.verdict == direct.verdict for through, direct in others.values())
    assert len(direct) >= 2 * 100


async def test_what_only_the_typescript_sdk_can_use_passes_the_gateway_as_it_came(sweep: Sweep) -> None:
    assert sweep.raw == {row: sent_by(*row) for row in sweep.raw}
    others = {row for row in wanted() if not usable(verdict_of(*row, "python"))} - set(sweep.raw)
    assert {row: sweep.through[row].value["content"] for row in others} == {
        row: sent_by(*row)["content"] for row in others
    }
    assert sweep.raw
    assert others


def meant_by(transport: str, name: str) -> Outcome:
    """What the Python SDK gets from this server, which it can use."""
    verdict = verdict_of(transport, name, "python")
    if verdict != "answer":
        return Outcome(verdict, TABLES[transport][name]["call_outcome"]["error"]["message"])
    result = CallToolResult.model_validate(sent_by(transport, name))
    return Outcome(verdict, result.model_dump(mode="json", by_alias=True, exclude_none=True))


def sent_by(transport: str, name: str) -> Any:
    """The result of a call as this server sends it, with whole characters only."""
    call = {"id": 1, "method": "tools/call", "params": {}}
    said = [text.replace("\\ud83d", "\ufffd") for text in Odd(TABLES[transport][name]).texts(call)]
    messages = [json.loads(text) for text in said if text.startswith("{")]
    return next(each["result"] for each in messages if "result" in each and float(each["id"]) == 1)
