"""2026-07-28 over HTTP, byte by byte, in front of servers that do what the test says."""

from types import SimpleNamespace

import anyio
import pytest

from gateway.errors import RpcError
from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio

VERSION = "2026-07-28"
ACCEPT = "application/json, text/event-stream"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def text(words):
    return {"content": [{"type": "text", "text": words}], "resultType": "complete"}


async def quiet(_, __):
    return text("done")


async def chatty(_, caller):
    for step in range(3):
        caller.notified("notifications/progress", {"progressToken": "p", "progress": step})
    return text("done")


async def test_answer_with_nothing_before_it_is_json(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        answer = await site.modern("tools/call", {"name": "quiet"}, request_id="a")

    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {"jsonrpc": "2.0", "id": "a", "result": text("done")}
    assert "mcp-session-id" not in answer.headers


async def test_pushes_before_an_answer_come_with_it_in_order_on_one_stream(servers, site_of):
    servers.tool(chatty)
    async with site_of(servers) as site, site.modern_stream("tools/call", {"name": "chatty"}) as stream:
        events = await stream.events()

    assert stream.response.headers["content-type"] == "text/event-stream"
    assert stream.response.headers["x-accel-buffering"] == "no"
    assert [event.get("params", {}).get("progress") for event in events] == [0, 1, 2, None]
    assert events[-1] == {"jsonrpc": "2.0", "id": 1, "result": text("done")}
    assert stream.ids == []


async def test_what_the_envelope_says_of_the_client_reaches_the_servers(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        site.principal = Principal("ann")
        await site.modern("tools/call", {"name": "quiet"}, meta={"io.modelcontextprotocol/logLevel": "error"})
    (caller,) = servers.callers

    assert (caller.modern, caller.session, caller.log_level) == (True, None, "error")
    assert (caller.capabilities, caller.principal.name) == ({"elicitation": {}}, "ann")
    with pytest.raises(RpcError, match="can't be asked"):
        await caller.asked("elicitation/create", {})


@pytest.mark.parametrize(("level", "count"), [(None, 1), ("debug", 2)])
async def test_log_messages_come_only_to_who_asked_for_them(servers, site_of, level, count):
    async def logs(_, caller):
        caller.notified("notifications/message", {"level": "info", "data": "x"})
        return text("done")

    servers.tool(logs)
    meta = {} if level is None else {"io.modelcontextprotocol/logLevel": level}
    async with site_of(servers) as site:
        answer = await site.modern("tools/call", {"name": "logs"}, meta=meta)

    assert answer.text.count("jsonrpc") == count


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"mcp_method": None}, 400, -32020),
        ({"mcp_method": "tools/list"}, 400, -32020),
        ({"mcp_method": "TOOLS/CALL"}, 400, -32020),
        ({"mcp_name": None}, 400, -32020),
        ({"mcp_name": "other"}, 400, -32020),
        ({"mcp_name": "=?base64?cXVpZXQ=?="}, 200, None),
        ({"mcp_name": "=?base64?cXVpZXR=?="}, 400, -32020),
        ({"mcp_protocol_version": "2026-01-01"}, 400, -32020),
        ({"accept": "application/json"}, 406, -32600),
        ({"content_type": "text/plain"}, 415, -32600),
        ({"mcp_session_id": "any", "last_event_id": "1-1"}, 200, None),
    ],
)
async def test_headers_must_say_what_the_body_says(servers, site_of, headers, status, code):
    servers.tool(quiet)
    async with site_of(servers) as site:
        answer = await site.modern("tools/call", {"name": "quiet"}, **headers)

    assert (answer.status_code, answer.json().get("error", {}).get("code")) == (status, code)


async def test_routing_header_that_comes_twice_is_a_mismatch(servers, site_of):
    servers.tool(quiet)
    async with site_of(servers) as site:
        sent = site.request("tools/call", {"name": "quiet"})
        headers = [*sent["headers"].items(), ("Mcp-Name", "other")]
        answer = await (await site.http()).post(site.url, content=sent["content"], headers=headers)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)
    assert "mcp-name" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("meta", "header", "code"),
    [
        ({"io.modelcontextprotocol/protocolVersion": "1999-01-01"}, "1999-01-01", -32022),
        ({"io.modelcontextprotocol/clientCapabilities": []}, VERSION, -32602),
    ],
)
async def test_envelope_that_is_not_in_order_is_a_bad_request(servers, site_of, meta, header, code):
    async with site_of(servers) as site:
        answer = await site.modern("tools/list", meta=meta, mcp_protocol_version=header)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert answer.json()["id"] == 1


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "nonsense"]
)
async def test_method_that_the_era_does_not_have_is_not_found(servers, site_of, method):
    async with site_of(servers) as site:
        answer = await site.modern(method)

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)


async def test_error_of_a_server_passes_with_the_status_of_its_code(servers, site_of):
    async def refuses(_, __):
        raise RpcError({"code": -32021, "message": "need more", "data": {"x": None}, "extra": 1})

    async def quota(_, __):
        raise RpcError({"code": -31999, "message": "quota"})

    servers.tool(refuses)
    servers.tool(quota)
    async with site_of(servers) as site:
        refused = await site.modern("tools/call", {"name": "refuses"})
        over = await site.modern("tools/call", {"name": "quota"})

    assert refused.json()["error"] == {"code": -32021, "message": "need more", "data": {"x": None}, "extra": 1}
    assert (refused.status_code, over.status_code) == (400, 200)


async def test_discovery_says_what_we_speak_and_offer(servers, site_of):
    async with site_of(servers) as site:
        result = (await site.modern("server/discover")).json()["result"]

    assert result["supportedVersions"] == [VERSION]
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
    assert (result["capabilities"], result["instructions"]) == (servers.offered, "be kind")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "codec-gateway"


async def test_only_post_is_allowed(servers, site_of):
    async with site_of(servers) as site:
        http = await site.http()
        answers = [
            await http.request(method, site.url, headers={"mcp-protocol-version": VERSION})
            for method in ("GET", "DELETE")
        ]

    assert [(answer.status_code, answer.headers["allow"]) for answer in answers] == [(405, "POST")] * 2


@pytest.mark.parametrize(("version", "status"), [(VERSION, 202), ("1999-01-01", 400)])
async def test_notification_is_accepted_in_a_version_that_we_speak(servers, site_of, version, status):
    body = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    headers = {"accept": ACCEPT, "content-type": "application/json", "mcp-protocol-version": version}
    async with site_of(servers) as site:
        answer = await (await site.http()).post(site.url, content=body, headers=headers)

    assert answer.status_code == status
    assert bool(answer.content) == (status != 202)


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"", -32700, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"error":{}}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":[1],"method":"x"}', -32600, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"x"}', -32600, 1),
    ],
)
async def test_body_that_is_no_request_is_a_bad_request(servers, site_of, body, code, request_id):
    headers = {"accept": ACCEPT, "content-type": "application/json", "mcp-protocol-version": VERSION}
    async with site_of(servers) as site:
        answer = await (await site.http()).post(site.url, content=body, headers=headers)

    assert answer.status_code == 400
    assert (answer.json()["error"]["code"], answer.json()["id"]) == (code, request_id)


@pytest.mark.parametrize(
    ("header", "status"), [("eu", 200), (None, 400), ("us", 400), ("=?base64?ZXU=?=", 200), ("=?base64?ZXV=?=", 400)]
)
async def test_argument_that_a_schema_annotates_must_stand_in_its_header(servers, site_of, header, status):
    servers.tool(quiet)
    properties = {"region": {"type": "string", "x-mcp-header": "Region"}}
    servers.schemas["quiet"] = {"type": "object", "properties": properties}
    async with site_of(servers) as site:
        params = {"name": "quiet", "arguments": {"region": "eu"}}
        answers = [await site.modern("tools/call", params, mcp_param_region=header) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [status, status]
    assert len(servers.asked) == (2 if status == 200 else 0)


async def test_client_that_leaves_ends_its_request(servers, site_of):
    began, cancelled = servers.hanging()
    async with site_of(servers) as site:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(site.modern, "tools/call", {"name": "hang"})
            await began.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(20):
            await cancelled.wait()


async def test_client_that_leaves_its_stream_ends_its_request(servers, site_of):
    cancelled = anyio.Event()

    async def endless(_, caller):
        try:
            caller.notified("notifications/progress", {"progress": 1})
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    servers.tool(endless)
    async with site_of(servers) as site:
        async with site.modern_stream("tools/call", {"name": "endless"}) as stream:
            await stream.event()
        with anyio.fail_after(20):
            await cancelled.wait()


async def test_client_that_does_not_read_loses_progress_only(servers, site_of):
    async def flood(_, caller):
        for step in range(40):
            caller.notified("notifications/resources/updated", {"uri": f"x:{step}"})
            for _ in range(100):
                caller.notified("notifications/progress", {"progress": step, "message": "x" * 2000})
            await anyio.lowlevel.checkpoint()
        return text("done")

    servers.tool(flood)
    async with site_of(servers) as site:
        async with site.modern_stream("tools/call", {"name": "flood"}) as stream:
            events = await stream.events()
        dropped = site.dropped()

    updates = [event["params"]["uri"] for event in events if event.get("method") == "notifications/resources/updated"]
    assert dropped > 0
    assert updates == [f"x:{step}" for step in range(40)]
    assert events[-1]["result"] == text("done")


LISTEN = {
    "notifications": {
        "toolsListChanged": True,
        "promptsListChanged": False,
        "resourceSubscriptions": ["x:1", "x:1"],
        "unknown": True,
    }
}


async def test_listener_hears_what_it_asked_for_and_nothing_else(servers, site_of):
    async with site_of(servers) as site:
        site.principal = Principal("ann", servers=frozenset({"one"}))
        async with site.modern_stream("subscriptions/listen", LISTEN, request_id="s") as stream:
            acknowledged = await stream.event()
            servers.change("prompts")
            servers.change("tools", "two")
            servers.change("tools", "one")
            changed = await stream.event()
            servers.watched["x:1"]("x:1")
            updated = await stream.event()
        await servers.until(lambda: not servers.watched and len(servers.callbacks) == 1)

    meta = {SUBSCRIPTION: "s"}
    assert acknowledged == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["x:1"]}, "_meta": meta},
    }
    assert (changed["method"], changed["params"]) == ("notifications/tools/list_changed", {"_meta": meta})
    assert (updated["method"], updated["params"]) == ("notifications/resources/updated", {"uri": "x:1", "_meta": meta})


async def test_listener_is_told_of_its_own_lists_and_nobody_elses(servers, site_of):
    async with site_of(servers) as site:
        site.principal = Principal("ann", owner="key:a")
        wanted = {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}
        async with site.modern_stream("subscriptions/listen", wanted) as stream:
            await stream.event()
            servers.change("tools", owner="key:b")
            servers.change("prompts", owner="key:a")
            changed = await stream.event()

    assert changed["method"] == "notifications/prompts/list_changed"


async def test_what_is_not_offered_is_not_acknowledged(servers, site_of):
    servers.offered = {"tools": {}, "resources": {"listChanged": True}}
    async with site_of(servers) as site, site.modern_stream("subscriptions/listen", LISTEN) as stream:
        acknowledged = await stream.event()

    assert acknowledged["params"]["notifications"] == {}
    assert servers.watched == {}


async def test_listener_is_told_when_the_gateway_ends(servers, site_of):
    async with site_of(servers) as site, site.modern_stream("subscriptions/listen", LISTEN) as stream:
        await stream.event()
        site.endpoint.stop_listening()
        last = await stream.events()

    assert last == [{"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "_meta": {SUBSCRIPTION: 1}}}]


@pytest.mark.parametrize(
    "params",
    [{}, {"notifications": []}, *({"notifications": {"resourceSubscriptions": uris}} for uris in ("x", [1]))],
)
async def test_malformed_filter_is_refused(servers, site_of, params):
    async with site_of(servers) as site:
        answer = await site.modern("subscriptions/listen", params)

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)


async def test_subscription_watches_up_to_256_resources(servers, site_of):
    def watching(count):
        return {"notifications": {"resourceSubscriptions": [f"x:{number}" for number in range(count)] * 2}}

    async with site_of(servers) as site:
        async with site.modern_stream("subscriptions/listen", watching(256)) as stream:
            acknowledged = await stream.event()
        refused = await site.modern("subscriptions/listen", watching(257))

    assert len(acknowledged["params"]["notifications"]["resourceSubscriptions"]) == 256
    assert "names more than 256 resources" in refused.json()["error"]["message"]


async def test_resource_that_changes_before_the_acknowledgement_is_told_behind_it(servers, site_of, monkeypatch):
    watch = servers.watch

    async def watch_what_changes(uris, principal, updated):
        stop = await watch(uris, principal, updated)
        updated("x:1")
        return stop

    monkeypatch.setattr(servers, "watch", watch_what_changes)
    async with site_of(servers) as site, site.modern_stream("subscriptions/listen", LISTEN) as stream:
        methods = [(await stream.event())["method"] for _ in range(2)]

    assert methods == ["notifications/subscriptions/acknowledged", "notifications/resources/updated"]


async def test_change_of_one_session_s_list_is_told_to_no_listener(servers, site_of):
    wanted = {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}
    async with site_of(servers) as site, site.modern_stream("subscriptions/listen", wanted) as stream:
        await stream.event()
        of_a_session = SimpleNamespace(kind="tools", server="one", session=object(), owner=None)
        for callback in list(servers.callbacks):
            callback(of_a_session)
        servers.change("prompts")
        changed = await stream.event()

    assert changed["method"] == "notifications/prompts/list_changed"


async def test_place_of_a_subscription_that_could_not_begin_is_given_back(servers, site_of, monkeypatch):
    async def refuse(*_):
        raise RpcError({"code": -32602, "message": "no such resource"})

    with monkeypatch.context() as patched:
        patched.setattr(servers, "watch", refuse)
        patched.setattr("gateway.serve.mcp.methods._MOST", 1)
        async with site_of(servers) as site:
            refused = [await site.modern("subscriptions/listen", LISTEN) for _ in range(2)]

    assert [answer.json()["error"]["message"] for answer in refused] == ["no such resource"] * 2
