"""Spans, as the SDK's own exporter gets them, and as a collector gets them over HTTP."""

import subprocess
import sys
import threading
from asyncio import CancelledError
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.baggage import get_all
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from gateway.app.mcp_services import open_tracing, traces_url
from gateway.config.access import TelemetryConfig
from gateway.errors import ConfigError, RpcError
from gateway.observe.tracing import read_context, write_context
from tests.gateway.exported_spans import ExportedSpans

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"
CALL = {"name": "time__now", "arguments": {"zone": "secret zone"}}


class Recorder(ExportedSpans):
    @property
    def one(self) -> ReadableSpan:
        (span,) = self.all
        return span


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_server_span_has_the_attributes_of_the_conventions(recorder: Recorder) -> None:
    with recorder.tracing.server_span("tools/call", CALL, request_id=7, session_id="s-1", version="2025-11-25"):
        pass

    assert recorder.one.name == "tools/call time__now"
    assert recorder.one.kind is SpanKind.SERVER
    assert attributes_of(recorder.one) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "mcp.session.id": "s-1",
        "jsonrpc.request.id": "7",
        "gen_ai.tool.name": "time__now",
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }


@pytest.mark.parametrize(
    ("method", "params", "name", "attribute"),
    [
        ("prompts/get", {"name": "greet"}, "prompts/get greet", ("gen_ai.prompt.name", "greet")),
        ("resources/read", {"uri": "file:///a"}, "resources/read", ("mcp.resource.uri", "file:///a")),
        ("tools/list", {}, "tools/list", ("network.transport", "pipe")),
        ("tools/call", {"name": 5}, "tools/call", ("mcp.method.name", "tools/call")),
    ],
)
def test_span_is_named_by_its_method_and_target(
    recorder: Recorder, method: str, params: dict[str, Any], name: str, attribute: tuple[str, str]
) -> None:
    with recorder.tracing.server_span(method, params, transport="pipe"):
        pass

    assert recorder.one.name == name
    assert attributes_of(recorder.one)[attribute[0]] == attribute[1]
    assert "network.protocol.name" not in attributes_of(recorder.one)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {"name": "x", "uri": "file:///x"}),
        ("tools/call", {"name": 5, "uri": "file:///x"}),
        ("prompts/get", {"name": 5}),
        ("resources/read", {"name": "x", "uri": 5}),
    ],
)
def test_only_what_a_method_is_about_is_an_attribute(recorder: Recorder, method: str, params: dict[str, Any]) -> None:
    with recorder.tracing.server_span(method, params, transport="pipe"):
        pass

    assert recorder.one.name == method
    assert attributes_of(recorder.one) == {"mcp.method.name": method, "network.transport": "pipe"}


def test_headers_that_go_on_carry_the_span_instead_of_what_came(recorder: Recorder) -> None:
    came = [(b"x", b"1"), (b"traceparent", OTHER.encode()), (b"tracestate", b"a=1"), (b"baggage", b"user=ada")]
    kept = [(b"x", b"1"), (b"baggage", b"user=ada")]
    assert recorder.tracing.write_headers(came) == kept

    with recorder.tracing.request_span("POST /x", {"traceparent": TRACEPARENT, "tracestate": "b=2"}, {}) as traced:
        sent = recorder.tracing.write_headers(came)
        child = traced.headers

    assert recorder.one.context is not None
    traceparent = f"00-{TRACE}-{format_span_id(recorder.one.context.span_id)}-01"
    assert sent == [*kept, (b"traceparent", traceparent.encode()), (b"tracestate", b"b=2")]
    assert child == {"traceparent": traceparent, "tracestate": "b=2"}


@pytest.mark.parametrize(("size", "read"), [(8192, True), (8193, False)])
def test_context_that_is_too_long_is_not_read(size: int, read: bool) -> None:
    pairs = f"a={'v' * 4093},b={'v' * (size - 4098)}"
    assert len(pairs) == size
    context = read_context({"traceparent": TRACEPARENT, "baggage": pairs})

    assert context is not None
    assert set(get_all(context)) == ({"a", "b"} if read else set())


def test_arguments_are_in_no_span(recorder: Recorder) -> None:
    with recorder.tracing.server_span("tools/call", CALL), recorder.tracing.client_span("time", "tools/call", CALL):
        pass

    assert "secret zone" not in "".join(span.to_json() for span in recorder.all)


def test_span_hangs_under_the_context_in_meta(recorder: Recorder) -> None:
    with recorder.tracing.server_span("tools/call", {**CALL, "_meta": {"traceparent": TRACEPARENT}}):
        pass

    parent = recorder.one.parent
    assert parent is not None
    assert (format_trace_id(parent.trace_id), format_span_id(parent.span_id)) == (TRACE, PARENT)


def test_context_of_the_http_request_is_the_parent_where_meta_has_none(recorder: Recorder) -> None:
    with recorder.tracing.server_span("tools/list", {}, headers={"traceparent": TRACEPARENT}):
        pass

    assert recorder.one.parent is not None
    assert format_span_id(recorder.one.parent.span_id) == PARENT
    assert list(recorder.one.links) == []


def test_context_of_the_http_request_is_linked_where_meta_has_its_own(recorder: Recorder) -> None:
    params = {"_meta": {"traceparent": TRACEPARENT}}
    with recorder.tracing.server_span("tools/list", params, headers={"traceparent": OTHER}):
        pass

    assert recorder.one.parent is not None
    assert format_trace_id(recorder.one.parent.trace_id) == TRACE
    assert [format_trace_id(link.context.trace_id) for link in recorder.one.links] == ["1" * 32]


def test_request_to_the_server_carries_the_client_span_and_the_baggage(recorder: Recorder) -> None:
    meta = {"traceparent": TRACEPARENT, "tracestate": "a=1", "baggage": "user=ada", "progressToken": 1, "x/y": [2]}
    params = {**CALL, "_meta": meta}
    with (
        recorder.tracing.server_span("tools/call", params),
        recorder.tracing.client_span("time", "tools/call", params, version="2026-07-28") as traced,
    ):
        sent = traced.params

    client, server = recorder.all
    assert client.parent is not None
    assert server.context is not None
    assert client.context is not None
    assert client.parent.span_id == server.context.span_id
    assert client.kind is SpanKind.CLIENT
    assert attributes_of(client)["codec.server"] == "time"
    assert sent["_meta"] == {
        "traceparent": f"00-{TRACE}-{format_span_id(client.context.span_id)}-01",
        "tracestate": "a=1",
        "baggage": "user=ada",
        "progressToken": 1,
        "x/y": [2],
    }
    assert sent["arguments"] is CALL["arguments"]
    assert params["_meta"] is meta
    assert meta["traceparent"] == TRACEPARENT


def test_spans_of_requests_at_the_same_time_are_of_their_own_traces(recorder: Recorder) -> None:
    with recorder.tracing.server_span("tools/list", {}):
        pass
    with recorder.tracing.client_span("time", "tools/list", {}):
        pass

    server, client = recorder.all
    assert client.parent is None
    assert client.context is not None
    assert server.context is not None
    assert client.context.trace_id != server.context.trace_id


def test_result_that_is_an_error_of_the_tool_is_a_failure(recorder: Recorder) -> None:
    with recorder.tracing.server_span("tools/call", CALL) as traced:
        traced.answered({"content": [], "isError": True})

    assert attributes_of(recorder.one)["error.type"] == "tool_error"
    assert recorder.one.status.status_code is StatusCode.ERROR


def test_result_that_is_none_leaves_the_status_alone(recorder: Recorder) -> None:
    with recorder.tracing.server_span("tools/call", CALL) as traced:
        traced.answered({"content": []})

    assert "error.type" not in attributes_of(recorder.one)
    assert recorder.one.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("error", "kind", "description"),
    [
        (RpcError({"code": -32602, "message": "Bearer abcdefgh bad\n"}), "-32602", "Bearer **** bad\\n"),
        (CancelledError(), "cancelled", None),
        (TimeoutError("x"), "TimeoutError", None),
    ],
)
def test_failure_says_its_kind_and_goes_on(
    recorder: Recorder, error: BaseException, kind: str, description: str | None
) -> None:
    with pytest.raises(type(error)), recorder.tracing.server_span("tools/call", CALL):
        raise error

    assert attributes_of(recorder.one)["error.type"] == kind
    assert recorder.one.status.description == description
    assert list(recorder.one.events) == []


@given(
    st.dictionaries(
        st.sampled_from(["traceparent", "tracestate", "baggage", "x"]), st.none() | st.text() | st.integers()
    )
)
def test_strange_context_is_passed_over(carrier: dict[str, Any]) -> None:
    assert read_context(carrier) is None
    kept = write_context({"_meta": carrier})["_meta"]
    assert kept == {key: value for key, value in carrier.items() if key in {"x", "baggage"}}


@given(st.text(max_size=50), st.text(max_size=50), st.text(max_size=50))
def test_strange_words_break_no_span(method: str, name: str, uri: str) -> None:
    recorder = Recorder()
    with recorder.tracing.server_span(method, {"name": name, "uri": uri}, request_id=name):
        pass

    assert len(recorder.one.name) <= 600


@given(st.text(max_size=500), st.text(max_size=500))
def test_strange_words_of_a_model_s_call_are_escaped_and_cut(name: str, call_id: str) -> None:
    recorder = Recorder()
    with recorder.tracing.tool_span(name, call_id):
        pass

    span = recorder.one
    assert span.name == f"execute_tool {attributes_of(span)['gen_ai.tool.name']}"
    for words in (span.name, attributes_of(span)["gen_ai.tool.call.id"]):
        assert words.isprintable()
        assert len(words) <= 200


@pytest.mark.anyio
async def test_task_that_outlives_its_request_adds_nothing_to_the_request_s_trace(recorder: Recorder) -> None:
    tracing, over = recorder.tracing, anyio.Event()
    housekeeping: list[bool] = []

    async def outlive() -> None:
        housekeeping.append(tracing.wants("ping"))
        await over.wait()
        housekeeping.append(tracing.wants("ping"))
        with tracing.generation_span("chat m", {}), tracing.client_span("time", "tools/call", CALL):
            pass

    async with anyio.create_task_group() as tasks:
        with tracing.request_span("POST /x", {}, {}):
            tasks.start_soon(outlive)
            await anyio.wait_all_tasks_blocked()
        over.set()

    assert housekeeping == [True, False]
    assert [span.parent for span in recorder.all] == [None, None, None]


def test_generation_is_the_parent_of_nothing(recorder: Recorder) -> None:
    tracing = recorder.tracing
    with tracing.request_span("POST /x", {}, {}), tracing.generation_span("chat m", {}), tracing.tool_span("say", "1"):
        pass

    tool, generation, request = recorder.all
    assert request.context is not None
    assert [span.parent and span.parent.span_id for span in (tool, generation)] == [request.context.span_id] * 2


def test_collector_s_address_alone_gets_the_standard_path() -> None:
    assert traces_url("http://c:4318") == "http://c:4318/v1/traces"
    assert traces_url("http://c:4318/") == "http://c:4318/v1/traces"
    assert traces_url("https://c/otlp/v1/traces") == "https://c/otlp/v1/traces"


class _Collector(BaseHTTPRequestHandler):
    received: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.mark.anyio
async def test_what_was_traced_reaches_the_collector_before_the_end() -> None:
    with HTTPServer(("127.0.0.1", 0), _Collector) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        config = TelemetryConfig(f"http://127.0.0.1:{server.server_port}", "my gateway")
        async with open_tracing(config) as tracing:
            assert tracing is not None
            with tracing.server_span("tools/call", CALL):
                pass
        server.shutdown()
        thread.join()

    ((path, body),) = _Collector.received
    assert path == "/v1/traces"
    assert b"tools/call time__now" in body
    assert b"my gateway" in body


@pytest.mark.anyio
async def test_without_a_collector_there_is_no_tracing() -> None:
    async with open_tracing(TelemetryConfig()) as tracing:
        assert tracing is None


@pytest.mark.anyio
async def test_collector_without_the_extra_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with pytest.raises(ConfigError, match="codec-gateway\\[otel\\]"):
        async with open_tracing(TelemetryConfig("http://127.0.0.1:9")):
            pytest.fail("it opened")


def test_gateway_that_traces_nothing_loads_nothing_of_it() -> None:
    code = "import sys, gateway.app.process; print(any(name.startswith('opentelemetry') for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"
