"""Whatever a client sends: nothing is raised, and who is owed an answer gets one."""

import json
import os
from typing import Any

import anyio
from hypothesis import example, given, settings
from hypothesis import strategies as st

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
METHODS = ["initialize", "ping", "tools/call", "tools/list", "logging/setLevel", "server/discover", "x", 7, None]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.text(max_size=4), below, max_size=3)),
    max_leaves=6,
)
METAS = st.fixed_dictionaries(
    {},
    optional={
        VERSION: st.one_of(st.just("2026-07-28"), JSON),
        CAPABILITIES: st.one_of(st.just({}), JSON),
        "ai.codec/map": JSON,
        "io.modelcontextprotocol/logLevel": JSON,
    },
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "_meta": st.one_of(METAS, JSON),
        "protocolVersion": st.one_of(st.just("2025-11-25"), JSON),
        "capabilities": JSON,
        "name": st.one_of(st.just("quiet"), JSON),
        "arguments": JSON,
        "level": JSON,
        "requestId": JSON,
        "notifications": JSON,
    },
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"])},
    optional={
        "id": st.one_of(st.integers(0, 3), st.just("g1"), JSON),
        "method": st.one_of(st.sampled_from(METHODS), st.just("notifications/cancelled"), JSON),
        "params": st.one_of(PARAMS, JSON),
        "result": JSON,
        "error": JSON,
    },
)
BODIES = st.one_of(st.binary(max_size=40), st.one_of(JSON, MESSAGES).map(lambda value: json.dumps(value).encode()))
HEADERS = st.fixed_dictionaries(
    {"accept": st.just("*/*"), "content-type": st.just("application/json")},
    optional={
        "mcp-protocol-version": st.sampled_from(["2026-07-28", "2025-11-25", "", "\xff"]),
        "mcp-session-id": st.sampled_from(["known", "", "\xff"]),
        "mcp-method": st.sampled_from(["tools/call", "tools/list", "\xff"]),
        "mcp-name": st.sampled_from(["quiet", "=?base64?\xff?=", ""]),
        "last-event-id": st.sampled_from(["0-0", "1-1", "\xff"]),
        "content-length": st.sampled_from(["7", "x", "9" * 5000, "\xb2"]),
        "x-codec-map": st.sampled_from(["x", "\xff"]),
    },
)


class Exchange:
    """One HTTP request as ASGI sees it."""

    def __init__(self, method: str, headers: dict[str, str], body: bytes) -> None:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        self.scope = {"type": "http", "method": method, "path": "/mcp", "headers": raw}
        self.sent: list[dict[str, Any]] = []
        self._came = [{"type": "http.request", "body": body}]

    async def receive(self) -> dict[str, Any]:
        if self._came:
            return self._came.pop()
        await anyio.wait_all_tasks_blocked()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


async def quiet(_: object, __: object) -> dict[str, Any]:
    return {"content": []}


@settings(deadline=None)
@given(st.sampled_from(["POST", "POST", "POST", "GET", "DELETE", "PUT"]), HEADERS, BODIES)
@example("POST", {"accept": "*/*", "content-type": "application/json"}, b"[" * 100_000)
def test_any_http_request_is_answered_as_http_and_json_rpc_want_it(servers_type, endpoint_of, method, headers, body):
    async def main() -> None:
        servers = servers_type()
        servers.tool(quiet)
        endpoint = endpoint_of(servers)
        async with endpoint.running():
            greeting = json.dumps(
                {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": ""}}
            )
            opened = Exchange("POST", {"accept": "*/*", "content-type": "application/json"}, greeting.encode())
            await endpoint(opened.scope, opened.receive, opened.send)
            known = dict(opened.sent[0]["headers"])[b"mcp-session-id"].decode()
            if headers.get("mcp-session-id") == "known":
                headers["mcp-session-id"] = known
            exchange = Exchange(method, headers, body)
            await endpoint(exchange.scope, exchange.receive, exchange.send)

            if exchange.status == 202 or not exchange.body:
                assert exchange.status in (200, 202)
            elif dict(exchange.sent[0]["headers"])[b"content-type"] == b"application/json":
                answer = json.loads(exchange.body)
                assert answer["jsonrpc"] == "2.0"
                assert ("result" in answer) != ("error" in answer)
                assert "error" in answer or exchange.status == 200
                assert answer.get("error", {}).get("code") != -32603

    anyio.run(main)


@settings(deadline=None)
@given(st.lists(BODIES, max_size=6))
def test_any_lines_leave_a_client_that_can_still_be_served(servers_type, endpoint_of, bodies):
    lines = [b" ".join(body.split(b"\n")) for body in bodies]

    async def main() -> list[dict[str, Any]]:
        servers = servers_type()
        servers.tool(quiet)
        (source, to_us), (from_us, sink) = os.pipe(), os.pipe()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(endpoint_of(servers).serve_descriptors, source, sink)
                os.write(to_us, b"\n".join([*lines, b'{"jsonrpc":"2.0","id":"last one","method":"ping"}', b""]))
                written = b""
                with anyio.fail_after(20):
                    while not (b'"last one"' in written and written.endswith(b"\n")):
                        await anyio.wait_readable(from_us)
                        written += os.read(from_us, 1 << 16)
                tasks.cancel_scope.cancel()
        finally:
            for descriptor in (source, to_us, from_us, sink):
                os.close(descriptor)
        return [json.loads(line) for line in written.splitlines()]

    answers = anyio.run(main)

    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert all(answer.get("error", {}).get("code") != -32603 for answer in answers)
    assert {"jsonrpc": "2.0", "id": "last one", "result": {}} in answers
