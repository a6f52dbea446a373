"""Reports of users of MCP servers and gateways, each in at least ten variations.

The servers of a family are behind one proxy at the same time: none may take anything from another.
"""

import itertools
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.types import ListToolsResult

from gateway.config.gateway_config import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.deadlines import CallClock, Deadlines
from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import ANYBODY, NOBODY
from gateway.proxy.proxy import Proxy
from gateway.proxy.upstream.server_lists import ListCache
from gateway.proxy.upstream.session.in_flight import TimedCaller
from tests.odd_servers.clients import arguments_of

pytestmark = pytest.mark.anyio
FAMILY = 10
"""Variations of one report, at least."""
SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")
DONE = [{"type": "text", "text": "done"}]


def odd(name: str, says: Mapping[str, Any]) -> UpstreamConfig:
    """An odd server on standard input and output."""
    command, *arguments = arguments_of(dict(says))
    return UpstreamConfig(name=name, command=command, args=tuple(arguments))


async def called(proxy: Proxy, who: Any, server: str) -> Any:
    """The result of the server's tool, or its error."""
    try:
        return (await proxy.handle("tools/call", {"name": f"{server}__odd", "arguments": {}}, who))["content"]
    except RpcError as error:
        return error.error


async def answers(proxy_of: Callable[..., Proxy], who: Any, family: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What a call of each server gives, by its number."""
    assert len(family) >= FAMILY
    found: dict[str, Any] = {}
    with anyio.fail_after(120):
        async with proxy_of(*(odd(f"s{number}", says) for number, says in enumerate(family))) as proxy:
            listed = [each["name"] for each in (await proxy.handle("tools/list", {}, who))["tools"]]
            for number in range(len(family)):
                found[f"s{number}"] = await called(proxy, who, f"s{number}")
    assert listed == [f"s{number}__odd" for number in range(len(family))]
    return found


def all_done(found: Mapping[str, Any]) -> bool:
    return found == dict.fromkeys(found, DONE)


SPELLINGS = ('"{}"', "{}.0", '"0{}"', '"00{}"', "{}e0", "{}0e-1")
ORDERS = (["jsonrpc", "id", "result"], ["result", "id"])


async def test_id_is_understood_however_it_is_spelled_and_wherever_it_is(proxy_of, client):
    family = [{"id": spelling, "order": order} for spelling, order in itertools.product(SPELLINGS, ORDERS)]
    assert all_done(await answers(proxy_of, client(), family))


CURSORS = ("", " ", False, True, 0, 2, 1.5, [], ["2"], {}, {"page": 2}, "again")


async def test_list_ends_at_a_cursor_that_leads_nowhere(proxy_of, client):
    family: list[Mapping[str, Any]] = []
    for cursor in CURSORS:
        page = {"tools": ["odd"], "nextCursor": cursor}
        family.append({"pages": {"": page, cursor if isinstance(cursor, str) else "": page}})
    assert all_done(await answers(proxy_of, client(), family))


BEFORE = (
    "Loading npm... ",
    "\ufeff",
    "\ufeffReady: ",
    "[info] ",
    "(node:1) Warning: {deprecated} ",
    "\x1b[32mok\x1b[0m ",
    "> server@1.0.0 start\n> node .\n\n",
    "{not json\n",
    '{"level": "info", "id": 1}\n',
    '{"jsonrpc": "2.0"}\n',
    "\r\n\r\n",
    "größer 🚀 ",
)


async def test_text_before_the_first_message_is_dropped(proxy_of, client):
    assert all_done(await answers(proxy_of, client(), [{"stdio": {"opening": text}} for text in BEFORE]))


ERRORS = (
    {"code": -32603, "message": "no"},
    {"code": -32700, "message": "Parse error", "data": None},
    {"code": 0, "message": ""},
    {"code": "E1", "message": "no"},
    {"code": -1},
    {"message": "no"},
    {},
    {"code": 1.5, "message": ["no"]},
    {"code": -5, "message": "no", "stack": []},
    "no",
)


@pytest.mark.parametrize("number", [None, "<gone>"])
async def test_error_without_an_id_fails_the_only_call_at_once(proxy_of, client, number):
    family = [{"call_outcome": {"error": error}, "call_answer": {"id": number}} for error in ERRORS]
    found = await answers(proxy_of, client(), family)

    assert all(isinstance(error["code"], int) and isinstance(error["message"], str) for error in found.values())


TEXTS = (
    "Be kind.",
    "a" * 5000,
    "zwei\nZeilen",
    "\ttab",
    "🚀",
    "שלום",
    "{json: 1}",
    "<b>bold</b>",
    "# Title",
    "\u2028",
    "'",
)


async def test_instructions_of_every_server_arrive(proxy_of):
    assert len(TEXTS) >= FAMILY
    servers = [odd(f"s{number}", {"initialize": {"instructions": text}}) for number, text in enumerate(TEXTS)]
    with anyio.fail_after(60):
        async with proxy_of(*servers) as proxy:
            await proxy.ready()
            told = proxy.instructions(ANYBODY)

    assert told is not None
    assert [text for text in TEXTS if text.strip() not in told] == []


URIS = (
    "ui://widget/main.html",
    "data://same",
    "file:///etc/hosts",
    "https://example.com/a?b=c#d",
    "x:1",
    "urn:isbn:1",
    "note://ü/ß",
    "a+b://c",
    "s3://bucket/k%20y",
    "mem://",
)


async def test_uri_that_two_servers_have_leads_to_the_one_that_shows_it(obeying, proxy_of, client):
    templates = [f"{uri.partition(':')[0]}://t{number}/{{id}}" for number, uri in enumerate(URIS)]
    offer = {"resources": list(URIS), "templates": templates, "capabilities": {"resources": {}}}
    with anyio.fail_after(60):
        async with proxy_of(*(obeying(name, {**offer, "reads": name}) for name in ("bank", "notes"))) as proxy:
            one = client()
            listed = [each["uri"] for each in (await proxy.handle("resources/list", {}, one))["resources"]]
            made = (await proxy.handle("resources/templates/list", {}, one))["resourceTemplates"]
            listed += [each["uriTemplate"].replace("{id}", "7") for each in made]
            read = [(await proxy.handle("resources/read", {"uri": uri}, one))["contents"][0]["text"] for uri in listed]

    assert len(set(listed)) == len(listed) == 4 * len(URIS)
    assert read == ["bank"] * len(URIS) + ["notes"] * len(URIS) + ["bank"] * len(URIS) + ["notes"] * len(URIS)


ENCODED = {
    "a://docs/café/{n}": "a://docs/caf%C3%A9/x",
    "b://my docs/{n}": "b://my%20docs/x",
    "c:///größe/{+p}/ende": "c:///gr%C3%B6%C3%9Fe/1/2/ende",
    "d://<x>/{n}": "d://%3Cx%3E/1",
    "e://{n}/ß": "e://1/%C3%9F",
    "f://a|b/{n}": "f://a%7Cb/1",
    "g://a%20b/{n}": "g://a%20b/1",
    "h://☃/{a}/☃/{b}": "h://%E2%98%83/1/%E2%98%83/2",
    "i://docs/café/{n}": "i://docs/café/x",
    "j://`q`/{n}": "j://%60q%60/1",
}


async def test_uri_of_a_template_is_read_where_the_client_encodes_what_the_template_does_not(obeying, proxy_of, client):
    """PrefectHQ/fastmcp 5166: clients that parse URIs send them encoded."""
    docs = {"templates": list(ENCODED), "capabilities": {"resources": {}}, "reads": "docs"}
    other = {"resources": ["x:1"], "capabilities": {"resources": {}}, "reads": "other"}
    with anyio.fail_after(60):
        async with proxy_of(obeying("docs", docs), obeying("other", other)) as proxy:
            one = client()
            await proxy.handle("resources/templates/list", {}, one)
            read = [
                (await proxy.handle("resources/read", {"uri": uri}, one))["contents"][0]["text"]
                for uri in ENCODED.values()
            ]

    assert read == ["docs"] * len(ENCODED)
    assert len(ENCODED) >= FAMILY


PROGRESS = (
    {"progress": 1},
    {"progress": 1, "total": 10},
    {"progress": 0},
    {"progress": -1},
    {"progress": 0.5, "message": "half"},
    {"progress": 1, "total": None},
    {"progress": "1"},
    {"progress": 10**30},
    {"progress": 1, "message": None, "_meta": {}},
    {},
)


@pytest.mark.parametrize("report", PROGRESS, ids=json.dumps)
async def test_every_report_of_progress_extends_the_time_of_its_call(client, report):
    with CallClock(Deadlines(), 3600, 7200) as clock:
        caller = TimedCaller(client(), clock)
        before = clock.left
        while clock.left == before:
            await anyio.lowlevel.checkpoint()
        caller.notified("notifications/progress", {"progressToken": 1, **report})

    assert clock.extended


NAMES = ("a.b", "a/b", "a:b", "with space", "🚀", "größe", "n" * 140, "a\nb", "a\tb", "<b>", "a'b", "..", "a+b", "")


async def test_name_that_clients_refuse_has_an_alias_that_calls_its_tool(client):
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]
    server = odd("s" * 40, {"tool": tools[0], "other_tools": tools[1:]})
    limits = LimitsConfig(start_timeout=60.0)
    config = GatewayConfig(upstreams=(server,), prefix="always", limits=limits, safe_names=True)
    with anyio.fail_after(60):
        async with Proxy(config, Metrics()) as proxy:
            listed = [each["name"] for each in (await proxy.handle("tools/list", {}, client()))["tools"]]
            results = [
                (await proxy.handle("tools/call", {"name": name, "arguments": {}}, client()))["content"]
                for name in listed
            ]

    assert len(set(listed)) == len(NAMES) >= FAMILY
    assert [name for name in listed if SAFE.fullmatch(name) is None] == []
    assert results == [DONE] * len(NAMES)


PLACES: tuple[Callable[[Any], dict[str, Any]], ...] = (
    lambda bad: {"inputSchema": bad},
    lambda bad: {"inputSchema": {"type": "object", "properties": bad}},
    lambda bad: {"inputSchema": {"type": "object", "required": bad}},
    lambda bad: {"outputSchema": bad},
    lambda bad: {"annotations": bad},
    lambda bad: {"annotations": {"title": bad, "readOnlyHint": bad}},
    lambda bad: {"_meta": bad},
    lambda bad: {"icons": bad},
    lambda bad: {"icons": [bad]},
    lambda bad: {"title": bad},
    lambda bad: {"description": bad},
    lambda bad: {"execution": bad},
)
MALFORMED = (None, [], "words", 3, True, {}, [{}], {"type": "string"})


async def test_malformed_tools_of_one_server_take_no_tool_of_another(upstream, proxy_of, client):
    tools = [
        {"name": f"t{number}", "inputSchema": {"type": "object"}, **place(bad)}
        for number, (place, bad) in enumerate(itertools.product(PLACES, MALFORMED))
    ]
    bad = upstream("lists", json.dumps({"tools/list": [{"tools": tools}]}), name="bad")
    with anyio.fail_after(60):
        async with proxy_of(bad, odd("good", {})) as proxy:
            listed = await proxy.handle("tools/list", {}, client())
            status = proxy.statuses()[0]

    names = [tool.name for tool in ListToolsResult.model_validate(listed).tools]
    left_out = {each.item for each in status.malformed if each.left_out}
    assert names == [*(f"bad__{tool['name']}" for tool in tools if tool["name"] not in left_out), "good__odd"]
    told = {each.item for each in status.malformed}
    assert len(names) > len(tools) / 2
    assert len(told) > len(tools) / 2


UNREADABLE = (
    *(
        "Content-Length: 12\n",
        "Loading...\nReady\n",
        "{\n",
        '"jsonrpc"\n',
        "42\n",
        "<html>\n",
        "\x1b[31mno\n",
        "null\n",
    ),
    *(
        "{'jsonrpc': '2.0'}\n",
        "data: {}\n",
        "größer 🚀\n",
        "npm warn deprecated x@1.0.0\nadded 3 packages\n",
        "[1, 2]\n",
    ),
)


@pytest.mark.parametrize("printed", UNREADABLE)
async def test_server_that_never_speaks_json_rpc_is_quoted(proxy_of, until, printed):
    assert len(UNREADABLE) >= FAMILY
    server = UpstreamConfig(name="up", command="sh", args=("-c", 'printf %s "$0"; cat >/dev/null', printed))
    with anyio.fail_after(60):
        async with proxy_of(server, start_timeout=1.0) as proxy:
            await until(proxy, lambda: proxy.statuses()[0].last_error is not None)
            cause = proxy.statuses()[0].last_error

    first = printed.splitlines()[0].strip().replace("\x1b", r"\x1b")
    assert cause is not None
    assert "did not answer the handshake within 1 s" in cause
    assert "not JSON-RPC, the first: " in cause
    assert first in cause.replace("\\\\", "\\")


async def test_first_list_shows_what_servers_that_still_start_listed_in_an_earlier_run(tmp_path, upstream, proxy_of):
    cache = ListCache(tmp_path / "lists")
    gates = [tmp_path / f"gate{number}" for number in range(len(TEXTS))]
    servers = []
    for number, (gate, text) in enumerate(zip(gates, TEXTS, strict=True)):
        late = upstream("starts_late", name=f"s{number}")
        servers.append(replace(late, env={**late.env, "GATE": str(gate), "DESCRIPTION": text}))
        gate.write_text("go")
    with anyio.fail_after(60):
        async with proxy_of(*servers, list_cache=cache) as proxy:
            await proxy.ready()
            before = await proxy.handle("tools/list", {}, NOBODY)
    for gate in gates:
        # Now each waits for somebody to write to it.
        gate.unlink()
        os.mkfifo(gate)
    late = proxy_of(*servers, list_cache=cache, list_wait=600.0)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_entered, late)
            at_once = await late.handle("tools/list", {}, NOBODY)
            states = {each.state for each in late.statuses()}
            late.stop()

    assert [tool["description"] for tool in at_once["tools"]] == list(TEXTS)
    assert (at_once, states) == (before, {"starting"})


async def _entered(proxy: Proxy) -> None:
    async with proxy:
        pass
