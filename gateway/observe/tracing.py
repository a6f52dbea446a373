"""OpenTelemetry spans: what they have in common, and those of MCP messages (docs/gen-ai/mcp.md of the conventions).

Turns a client's request into a server span, and the gateway's request to the MCP server into a client span under it.
Trace context travels in `_meta` (`traceparent`, `tracestate`, `baggage`: bare names, by SEP-414), or in the headers of
requests to `/v1`. It does not know what is done for those: `agent/generate/engine_spans.py` and
`serve/http/middleware.py` do. It is imported only if tracing is on: it needs the extra `otel`.
"""

from asyncio import CancelledError
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any, Final, Literal, cast

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.escape import escape_text, mask_text

Attributes = Mapping[str, str | int | float | bool | Sequence[str]]
NetworkTransport = Literal["tcp", "pipe"]
"""`tcp`: HTTP; `pipe`: standard input and output."""

CONTEXT_KEYS: Final = ("traceparent", "tracestate", "baggage")
_REPLACED: Final = frozenset({"traceparent", "tracestate"})
"""Baggage that belongs to no trace stays as it is."""
CALLS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
_LONGEST_CONTEXT: Final = 8192
_NAME_CUT: Final = 128
_TEXT_CUT: Final = 500
_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()
_PROPAGATOR: Final = CompositePropagator([_TRACE_CONTEXT, W3CBaggagePropagator()])


class Traced:
    """One span while it lasts."""

    __slots__ = ("_span", "params")

    def __init__(self, span: Span, params: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._span = span
        self.params = params
        """The params to send; for a client span, with this span's context in `_meta`."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that make what another program does for a request a child of this span (W3C Trace Context)."""
        carrier: dict[str, str] = {}
        _TRACE_CONTEXT.inject(carrier, set_span_in_context(self._span, Context()))
        return carrier

    def set(self, attributes: Attributes) -> None:
        """Add attributes. Foreign text in them has to be escaped and cut already (`escape_name`)."""
        self._span.set_attributes(attributes)

    def answered(self, result: Mapping[str, Any]) -> None:
        """The result has arrived; one that is an error of the tool counts as a failure."""
        if result.get("isError") is True:
            self.erred("tool_error")

    def erred(self, kind: str) -> None:
        """It failed. `kind`: one of few words."""
        self._span.set_attribute("error.type", kind)
        self._span.set_status(StatusCode.ERROR)

    def failed(self, error: BaseException) -> None:
        """There is no result. For a JSON-RPC error its code is recorded, for anything else its kind."""
        answer: object = getattr(error, "error", None)
        if isinstance(answer, dict):
            fields = cast("dict[str, Any]", answer)
            code = str(fields.get("code"))
            self._span.set_attributes({"error.type": code, "rpc.response.status_code": code})
            self._span.set_status(StatusCode.ERROR, escape_text(mask_text(str(fields.get("message"))), _TEXT_CUT))
            return
        self.erred("cancelled" if isinstance(error, CancelledError) else type(error).__name__)


class Tracing:
    """Makes the spans of one gateway."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("codec-gateway")

    @contextmanager
    def server_span(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        request_id: str | int | None = None,
        session_id: str | None = None,
        version: str | None = None,
        transport: NetworkTransport = "tcp",
        headers: Mapping[str, str] | None = None,
    ) -> Generator[Traced]:
        """The span of a client's request, from its arrival to its answer.

        Its parent is the context in the request's `_meta`; that of the HTTP request is linked, or is the parent if
        `_meta` has none.
        """
        in_meta, around = read_context(_meta_of(params)), read_context(headers or {})
        parent = in_meta or around or Context()
        links = [Link(get_current_span(around).get_span_context())] if in_meta and around else []
        attributes = {
            **describe(method, params, transport, version),
            **({} if request_id is None else {"jsonrpc.request.id": escape_name(str(request_id))}),
            **({} if session_id is None else {"mcp.session.id": session_id}),
        }
        with self._message_span(SpanKind.SERVER, method, params, attributes, parent, links) as traced:
            yield traced

    @contextmanager
    def request_span(self, name: str, headers: Mapping[str, str], attributes: Attributes) -> Generator[Traced]:
        """The span of an HTTP request: a child of the context in its headers, and the parent of what is done for it."""
        with self._span(SpanKind.SERVER, name, attributes, read_context(headers) or Context()) as traced:
            yield traced

    def write_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Headers with the current context in place of the one that was received: a replica gets them as they are."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        kept = [pair for pair in headers if pair[0].decode("latin-1") not in _REPLACED]
        return [*kept, *((key.encode(), carrier[key].encode()) for key in sorted(_REPLACED & carrier.keys()))]

    @contextmanager
    def generation_span(self, name: str, attributes: Attributes) -> Generator[Traced]:
        """The span of a request to an engine. It is the parent of what the engine does, and of nothing here: tools are
        called for the request."""
        with self._span(SpanKind.CLIENT, name, attributes, _current(), entered=False) as traced:
            yield traced

    @contextmanager
    def tool_span(self, name: str, call_id: str) -> Generator[Traced]:
        """The span of a model's call of one of the gateway's tools; requests to the tool's server are its children."""
        tool = escape_name(name)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": escape_name(call_id),
            # By the conventions: called by the agent, not by its client.
            "gen_ai.tool.type": "extension",
        }
        with self._span(SpanKind.INTERNAL, f"execute_tool {tool}", attributes, _current()) as traced:
            yield traced

    def wants(self, method: str) -> bool:
        """Whether a request to a server is worth a span: it belongs to a client's request, or somebody waits for it."""
        return method in CALLS or get_current_span(_current()).get_span_context().is_valid

    @contextmanager
    def client_span(
        self,
        server: str,
        method: str,
        params: Mapping[str, Any],
        *,
        version: str | None = None,
        transport: NetworkTransport = "tcp",
    ) -> Generator[Traced]:
        """The span of the gateway's request to an MCP server; the caller sends the `params` of the yielded `Traced`."""
        attributes = {**describe(method, params, transport, version), "codec.server": server}
        with self._message_span(SpanKind.CLIENT, method, params, attributes, _current(), []) as traced:
            traced.params = write_context(params)
            yield traced

    def _message_span(
        self,
        kind: SpanKind,
        method: str,
        params: Mapping[str, Any],
        attributes: Mapping[str, str],
        parent: Context,
        links: Sequence[Link],
    ) -> AbstractContextManager[Traced]:
        target = attributes.get("gen_ai.tool.name") or attributes.get("gen_ai.prompt.name")
        name = escape_name(method)
        return self._span(kind, f"{name} {target}" if target else name, attributes, parent, links, params)

    @contextmanager
    def _span(
        self,
        kind: SpanKind,
        name: str,
        attributes: Attributes,
        parent: Context,
        links: Sequence[Link] = (),
        params: Mapping[str, Any] = MappingProxyType({}),
        *,
        entered: bool = True,
    ) -> Generator[Traced]:
        """A span that ends with the context. `entered`: whether it is the parent of those that begin in it."""
        span = self._tracer.start_span(name, parent, kind, attributes, links)
        token = attach(set_span_in_context(span, parent)) if entered else None
        traced = Traced(span, params)
        try:
            yield traced
        except BaseException as error:
            traced.failed(error)
            raise
        finally:
            if token is not None:
                detach(token)
            span.end()


def _current() -> Context:
    """The context of what runs here; none where its span has ended, since a task may outlive what started it."""
    ended: object = getattr(get_current_span(), "end_time", None)
    return get_current() if ended is None else Context()


def escape_name(text: str) -> str:
    """A name from elsewhere, fit for an attribute or the name of a span."""
    return escape_text(text, _NAME_CUT)


def describe(
    method: str, params: Mapping[str, Any], transport: NetworkTransport, version: str | None
) -> dict[str, str]:
    """The attributes that both kinds of spans have for a message. Arguments and results are never among them."""
    attributes = {"mcp.method.name": escape_name(method), "network.transport": transport}
    if transport == "tcp":
        attributes["network.protocol.name"] = "http"
    if version is not None:
        attributes["mcp.protocol.version"] = version
    name, uri = params.get("name"), params.get("uri")
    if method == "tools/call" and isinstance(name, str):
        attributes |= {"gen_ai.tool.name": escape_name(name), "gen_ai.operation.name": "execute_tool"}
    elif method == "prompts/get" and isinstance(name, str):
        attributes["gen_ai.prompt.name"] = escape_name(name)
    elif method.startswith("resources/") and isinstance(uri, str):
        attributes["mcp.resource.uri"] = escape_text(mask_text(uri), _TEXT_CUT)
    return attributes


def read_context(carrier: Mapping[str, Any]) -> Context | None:
    """The trace context that a request carries; None if there is no well-formed one."""
    fields = {
        key: value
        for key in CONTEXT_KEYS
        if isinstance(value := carrier.get(key), str) and value.isascii() and len(value) <= _LONGEST_CONTEXT
    }
    if "traceparent" not in fields:
        return None
    context = _PROPAGATOR.extract(fields, Context())
    return context if get_current_span(context).get_span_context().is_valid else None


def write_context(params: Mapping[str, Any]) -> dict[str, Any]:
    """The params with the current context in `_meta`, in place of the one that was received."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    kept = {key: value for key, value in _meta_of(params).items() if key not in _REPLACED}
    return {**params, "_meta": {**kept, **carrier}}


def _meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta: object = params.get("_meta")
    return cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
