"""Traces of requests to `/v1`, as a collector gets them from a running gateway with a real model."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CHAT = "/v1/chat/completions"
ASK = [{"role": "user", "content": "What time is it in Tokyo?"}]
CALLED = {"type": "function", "function": {"name": "near__say"}}


class _Collector(BaseHTTPRequestHandler):
    spans: ClassVar[list[Span]] = []

    def do_POST(self) -> None:
        sent = ExportTraceServiceRequest()
        sent.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
        self.spans.extend(span for each in sent.resource_spans for scope in each.scope_spans for span in scope.spans)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def collector() -> Iterator[HTTPServer]:
    _Collector.spans.clear()
    with HTTPServer(("127.0.0.1", 0), _Collector) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def told(span: Span) -> dict[str, Any]:
    values = ((each.key, each.value) for each in span.attributes)
    return {key: getattr(value, value.WhichOneof("value") or "string_value") for key, value in values}


def trees() -> list[list[tuple[str, str | None]]]:
    """Each trace: the name of each span and that of its parent, in the order in which they began."""
    names = {span.span_id: span.name for span in _Collector.spans}
    found: dict[bytes, list[tuple[str, str | None]]] = {}
    for span in sorted(_Collector.spans, key=lambda span: span.start_time_unix_nano):
        found.setdefault(span.trace_id, []).append((span.name, names.get(span.parent_span_id)))
    return list(found.values())


def test_requests_are_traced_from_their_client_to_the_engine_and_the_server(
    tmp_path, start_gateway, says, engine_flags, collector
):
    endpoint = f'[telemetry]\notlp_endpoint = "http://127.0.0.1:{collector.server_port}"\n'
    (tmp_path / "codec-gateway.toml").write_text(f'prefix = "always"\n{endpoint}')
    gateway = start_gateway({"near": says({"type": "text", "text": "It is ten."})}, *engine_flags)
    asked = {"model": "any", "messages": ASK, "temperature": 0, "seed": 1, "tool_choice": CALLED, "max_tokens": 80}
    with httpx2.Client(base_url=gateway.url, timeout=240) as client:
        answer = client.post(CHAT, json=asked, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}).json()
        left = {"model": "left", "messages": ASK, "tool_choice": "none", "max_tokens": 3000, "stream": True}
        with client.stream("POST", CHAT, json=left) as stream:
            next(stream.iter_lines())
        client.post(CHAT, json={"model": "refused"})
        # Answered by the same engine: by then it has noticed that the client left.
        client.post("/v1/messages", json={"model": "last", "messages": ASK, "max_tokens": 4})
    gateway.process.terminate()
    gateway.process.wait(30)

    post = f"POST {CHAT}"
    whole, broken, refused, last = trees()
    # What a model of this size does after the result is its own affair.
    assert whole[:5] == [
        (post, None),
        ("chat any", post),
        ("execute_tool near__say", post),
        ("tools/call say", "execute_tool near__say"),
        ("chat any", post),
    ]
    assert broken == [(post, None), ("chat left", post)]
    assert refused == [(post, None)]
    assert last == [("POST /v1/messages", None), ("chat last", "POST /v1/messages")]
    first = next(span for span in _Collector.spans if span.trace_id == bytes.fromhex(TRACE) and span.name == post)
    assert first.parent_span_id == bytes.fromhex(PARENT)
    chats = [told(span) for span in _Collector.spans if span.name == "chat any"]
    used = [sum(chat[f"gen_ai.usage.{kind}_tokens"] for chat in chats) for kind in ("input", "output")]
    cached = sum(chat["gen_ai.usage.cache_read.input_tokens"] for chat in chats)
    usage = answer["usage"]
    assert [*used, cached] == [
        usage["prompt_tokens"],
        usage["completion_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
    ]
    (left_chat,) = [span for span in _Collector.spans if span.name == "chat left"]
    failed = [span for span in _Collector.spans if span.trace_id == left_chat.trace_id]
    assert [span.status.code for span in failed] == [Status.STATUS_CODE_ERROR] * 2
    assert [told(span)["error.type"] for span in failed] == ["cancelled"] * 2
