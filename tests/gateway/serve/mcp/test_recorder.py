"""What is written down of requests: lines of a real audit log, spans of a real provider."""

import json
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.errors import RpcError
from gateway.observe.audit import Audit
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.tracing import Tracing
from gateway.proxy.caller import Principal
from gateway.proxy.result_tokens import ResultTokens
from gateway.proxy.results import CallOutcome, error_result
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import load_map

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[3]
MAP = load_map((TESTS / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json").read_bytes())
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def audited(tmp_path):
    """An endpoint's audit log, and its lines once it is closed."""
    path = tmp_path / "audit.jsonl"
    lines = []

    @contextmanager
    def run():
        with Audit(path, Metrics().access, arguments=True) as audit:
            yield audit
        lines.extend(json.loads(line) for line in path.read_text().splitlines())

    return run, lines


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider), exporter.get_finished_spans


def with_map(**more):
    metrics = Metrics()
    tokens = ResultTokens({MAP.map_id: MAP}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("t")))
    return {"tokens": tokens, "maps": {MAP.map_id: MAP}, **more}


def block(words, ids=None):
    meta = {} if ids is None else {"_meta": {CODEC_META_KEY: {"map_id": MAP.map_id, "ids": ids}}}
    return {"type": "text", "text": words, **meta}


async def test_call_over_http_is_a_line_that_says_who_called_what(servers, site_of, audited):
    async def quiet(_, __):
        return {"content": [block("done")]}

    servers.tool(quiet)
    run, lines = audited
    with run() as audit:
        async with site_of(servers, endpoint_with={"audit": audit}) as site:
            site.principal = Principal("ann")
            params = {"name": "quiet", "arguments": {"x": 1}}
            answer = await site.modern("tools/call", params, request_id="r")
            sent = site.request("tools/call", params, request_id="r")["content"]
            await site.modern("tools/list")

    (line,) = lines
    assert line.pop("duration_ms") >= 0
    assert line.pop("time")
    assert line == {
        "principal": "ann",
        "face": "mcp-http",
        "method": "tools/call",
        "server": "one",
        "tool": "quiet",
        "map": None,
        "source": "none",
        "bytes_in": len(sent),
        "bytes_out": len(answer.content),
        "ids": 0,
        "outcome": "ok",
        "request_id": "r",
        "arguments": {"x": 1},
    }


@pytest.mark.parametrize(
    ("blocks", "source", "ids"),
    [
        ([block("ab", MAP.encode("ab"))], "leaf", MAP.encode("ab")),
        ([block("ab")], "shim", MAP.encode("ab")),
        ([block("ab", MAP.encode("ab")), block("abc")], "mixed", MAP.encode("ab") + MAP.encode("abc")),
        ([{"type": "image"}, 7], "none", []),
    ],
)
async def test_line_says_whose_ids_left_with_the_result(servers, lines_of, audited, blocks, source, ids):
    async def speak(_, __):
        return {"content": blocks}

    servers.tool(speak)
    run, written = audited
    with run() as audit:
        async with lines_of(servers, **with_map(audit=audit, session_map=MAP.map_id)) as lines:
            await lines.greet()
            lines.ask("tools/call", {"name": "speak"})
            await lines.line()

    (line,) = written
    assert (line["face"], line["map"]) == ("mcp-stdio", MAP.map_id)
    assert (line["source"], line["ids"]) == (source, len(ids))


async def test_line_says_how_a_call_failed(servers, lines_of, audited):
    async def wrong(_, __):
        return {"content": [], "isError": True}

    async def refuses(_, __):
        raise RpcError({"code": -1, "message": "no"})

    async def breaks(_, __):
        raise ZeroDivisionError

    for tool in (wrong, refuses, breaks):
        servers.tool(tool)
    began, cancelled = servers.hanging()
    run, written = audited
    with run() as audit:
        async with lines_of(servers, audit=audit) as lines:
            await lines.greet()
            for tool in ("wrong", "refuses", "breaks"):
                lines.ask("tools/call", {"name": tool})
                await lines.line()
            lines.ask("tools/call", {"name": "hang"})
            await began.wait()
            lines.ask("notifications/cancelled", {"requestId": 1}, None)
            with anyio.fail_after(20):
                await cancelled.wait()

    assert [(line["tool"], line["outcome"]) for line in written] == [
        ("wrong", "tool_error"),
        ("refuses", "refused"),
        ("breaks", "refused"),
        ("hang", "cancelled"),
    ]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("named", [{}, {"session_map": MAP.map_id}], ids=["no map", "a map"])
async def test_line_says_why_a_server_gave_no_answer(servers, site_of, audited, modern, named):
    async def slow(_, __):
        return CallOutcome(error_result("server 'one' did not answer"), "timeout", "one")

    async def away(_, __):
        return CallOutcome(error_result("server 'one' is away"), "unavailable", "one")

    servers.tool(slow)
    servers.tool(away)
    run, written = audited
    with run() as audit:
        async with site_of(servers, endpoint_with=with_map(audit=audit, **named)) as site:
            session = await site.session()
            for tool in ("slow", "away"):
                answer = await (site.modern("tools/call", {"name": tool}) if modern else session.call(tool))
                assert answer.json()["result"]["isError"] is True

    assert [(line["tool"], line["outcome"]) for line in written] == [("slow", "timeout"), ("away", "unavailable")]


async def test_request_is_a_span_under_the_one_that_its_client_names(servers, site_of, spans):
    async def quiet(_, __):
        return {"content": [], "isError": True}

    async def refuses(_, __):
        raise RpcError({"code": -31999, "message": "no"})

    servers.tool(quiet)
    servers.tool(refuses)
    tracing, finished = spans
    async with site_of(servers, endpoint_with={"tracing": tracing}) as site:
        meta = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        await site.modern("tools/call", {"name": "quiet"}, meta=meta)
        session = await site.session()
        await session.post("tools/call", {"name": "refuses"}, traceparent=meta["traceparent"])

    modern, handshake = finished()
    assert (modern.name, modern.parent.trace_id) == ("tools/call quiet", int(TRACE, 16))
    assert modern.attributes["mcp.protocol.version"] == "2026-07-28"
    assert modern.attributes["error.type"] == "tool_error"
    assert handshake.parent.trace_id == int(TRACE, 16)
    assert handshake.attributes["mcp.session.id"] == session.headers["mcp-session-id"]
    assert handshake.attributes["mcp.protocol.version"] == "2025-11-25"
    assert handshake.attributes["error.type"] == "-31999"


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_request_that_names_an_unknown_map_is_written_down_like_any_other(
    servers, site_of, spans, audited, method
):
    tracing, finished = spans
    run, lines = audited
    with run() as audit:
        async with site_of(servers, endpoint_with={"tracing": tracing, "audit": audit}) as site:
            params = {"name": "quiet"} if method == "tools/call" else {}
            answer = await site.modern(method, params, meta={"ai.codec/map": "sha256:00"})

    assert answer.json()["error"]["code"] == -32600
    (span,) = finished()
    assert span.attributes["error.type"] == "MapUnknown"
    assert [line["outcome"] for line in lines] == (["refused"] if method == "tools/call" else [])


async def test_span_of_a_client_on_pipes_says_so(servers, lines_of, spans):
    tracing, finished = spans
    async with lines_of(servers, tracing=tracing) as lines:
        await lines.greet()
        lines.ask("tools/list")
        await lines.line()

    (span,) = finished()
    assert (span.attributes["network.transport"], "mcp.session.id" in span.attributes) == ("pipe", False)
