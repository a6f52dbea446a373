"""The spans of requests to `/v1`, as an exporter of OpenTelemetry gets them, for the three APIs alike.

Each failure here was one of somebody's: openlit#1454, openinference#3790 and opentelemetry-python-genai#491 (spans and
contexts that leak where a client leaves a stream), vercel/ai#20586 (open spans behind an engine's error),
litellm#24027, #27934 and #39067 (traces that break, and children that become siblings), openllmetry#627 and
logfire#1651 (no usage in streams), litellm pull #27757 (the same span twice in a stream).
"""

import json
import sys
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id, get_current_span

from gateway.config import GatewayConfig, UpstreamConfig
from gateway.engine.interface import GenerateRequest, GenerationEnd, Timings
from gateway.errors import EngineUnavailable, RequestInvalid
from gateway.serve.http.middleware import EXPIRED, TracedRequests, note_failure
from tests.gateway.exported_spans import ExportedSpans
from tests.gateway.serve.generation.three_apis import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    MESSAGES,
    RESPONSES,
    SAYS,
    TINY,
    Apis,
    running,
    whole_body,
)

pytestmark = pytest.mark.anyio

APIS = (CHAT, RESPONSES, MESSAGES)
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
CALL = '<tool_call>\n{"name": "say", "arguments": {"secret": "of the call"}}\n</tool_call>'


class Spans(ExportedSpans):
    """What was exported."""

    @property
    def tree(self) -> list[tuple[str, str | None]]:
        """The name of each span and that of its parent, in the order in which they began."""
        names = {span.context.span_id: span.name for span in self.all if span.context is not None}
        began = sorted(self.all, key=lambda span: span.start_time or 0)
        return [(span.name, names.get(span.parent.span_id) if span.parent else None) for span in began]

    def named(self, beginning: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name.startswith(beginning)]

    def one(self, beginning: str) -> ReadableSpan:
        (span,) = self.named(beginning)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def apis(spans: Spans) -> AsyncGenerator[Apis]:
    async with running(tracing=spans.tracing) as found:
        yield found


@pytest.fixture
async def with_tool(spans: Spans) -> AsyncGenerator[Apis]:
    async with running(says="secret of the result", tracing=spans.tracing) as found:
        yield found


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def asking(path: str, words: str = "hi", **more: Any) -> dict[str, Any]:
    return {"input" if path == RESPONSES else "messages": [{"role": "user", "content": words}], **more}


def error_of(span: ReadableSpan) -> tuple[StatusCode, Any]:
    return span.status.status_code, attributes_of(span).get("error.type")


WELL = (StatusCode.UNSET, None)


async def test_one_trace_has_the_generations_and_the_calls_of_a_request(with_tool: Apis, spans: Spans) -> None:
    answer = await with_tool.post(CHAT, asking(CHAT, stream=True), CALL, "Done.", traceparent=TRACEPARENT)

    assert answer.status_code == 200
    assert spans.tree == [
        (f"POST {CHAT}", None),
        ("chat any", f"POST {CHAT}"),
        ("execute_tool say", f"POST {CHAT}"),
        ("tools/call say", "execute_tool say"),
        ("chat any", f"POST {CHAT}"),
    ]
    assert {format_trace_id(span.context.trace_id) for span in spans.all if span.context} == {TRACE}
    request = spans.one("POST")
    assert request.parent is not None
    assert format_span_id(request.parent.span_id) == PARENT
    kinds = [spans.one("POST"), spans.one("execute_tool"), spans.named("chat")[0]]
    assert [span.kind for span in kinds] == [SpanKind.SERVER, SpanKind.INTERNAL, SpanKind.CLIENT]
    assert [error_of(span) for span in spans.all] == [WELL] * 5


async def test_generation_has_the_attributes_of_the_conventions(with_tool: Apis, spans: Spans) -> None:
    asked = {"temperature": 1, "top_p": 0.5, "seed": 7, "presence_penalty": 0.25, "top_k": 20, "max_tokens": 900}
    await with_tool.post(CHAT, asking(CHAT, model="gpt-x", frequency_penalty=0.5, **asked), CALL, "Done.")

    first, last = map(attributes_of, spans.named("chat gpt-x"))
    first_chunk, conversation = first.pop("gen_ai.response.time_to_first_chunk"), first.pop("gen_ai.conversation.id")
    assert 0 < first_chunk < 60
    assert conversation == last["gen_ai.conversation.id"]
    prompts = [len(TINY.encode(prompt, specials=True)) for prompt in with_tool.engine.prompts]
    assert first == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "llama_cpp",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.response.model": "scripted",
        "codec.engine": "engine",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 900,
        "gen_ai.request.temperature": 1.0,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.request.top_k": 20,
        "gen_ai.request.seed": 7,
        "gen_ai.request.presence_penalty": 0.25,
        "gen_ai.request.frequency_penalty": 0.5,
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": prompts[0],
        "gen_ai.usage.output_tokens": len(TINY.encode(CALL, specials=True)),
        "gen_ai.usage.cache_read.input_tokens": 0,
    }
    assert type(first["gen_ai.request.temperature"]) is float
    assert last["gen_ai.response.finish_reasons"] == ("stop",)
    assert last["gen_ai.usage.input_tokens"] == prompts[1]
    assert last["gen_ai.usage.output_tokens"] == len(TINY.encode("Done.", specials=True))


async def test_call_has_the_attributes_of_the_conventions(with_tool: Apis, spans: Spans) -> None:
    answer = await with_tool.ask(RESPONSES, asking(RESPONSES), CALL, "Done.")

    told = attributes_of(spans.one("execute_tool"))
    call_id = told.pop("gen_ai.tool.call.id")
    assert call_id == answer["codec"]["tool_results"][0]["call_id"]
    assert told == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "say",
        "gen_ai.tool.type": "extension",
    }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", APIS)
async def test_every_api_has_one_generation_with_its_usage(apis: Apis, spans: Spans, path: str, stream: bool) -> None:
    await apis.post(path, asking(path, stream=stream), "Hello.")

    assert spans.tree == [(f"POST {path}", None), ("chat any", f"POST {path}")]
    assert attributes_of(spans.one("POST")) == {
        "http.request.method": "POST",
        "http.route": path,
        "url.path": path,
        "url.scheme": "http",
        "http.response.status_code": 200,
    }
    told = attributes_of(spans.one("chat"))
    assert told["gen_ai.usage.input_tokens"] == len(TINY.encode(apis.engine.prompts[0], specials=True))
    assert told["gen_ai.usage.output_tokens"] == len(TINY.encode("Hello.", specials=True))
    assert told["gen_ai.response.finish_reasons"] == ("stop",)


async def test_each_of_several_answers_is_a_generation_of_its_own(apis: Apis, spans: Spans) -> None:
    await apis.post(CHAT, asking(CHAT, n=3), "One.", "Two two.", "Three.")

    assert spans.tree == [(f"POST {CHAT}", None), *[("chat any", f"POST {CHAT}")] * 3]
    used = [attributes_of(span)["gen_ai.usage.output_tokens"] for span in spans.named("chat")]
    assert used == [len(TINY.encode(text, specials=True)) for text in ("One.", "Two two.", "Three.")]


async def test_limit_and_stop_string_say_why_the_model_stopped(apis: Apis, spans: Spans) -> None:
    await apis.post(CHAT, asking(CHAT, max_tokens=2), "Hello there.")
    await apis.post(CHAT, asking(CHAT, stop=["there"]), "Hello there.")

    cut, stopped = map(attributes_of, spans.named("chat"))
    assert cut["gen_ai.response.finish_reasons"] == ("length",)
    assert cut["gen_ai.usage.output_tokens"] == 2
    assert stopped["gen_ai.response.finish_reasons"] == ("stop",)
    # The engine was cut off, so it did not say what it had cached; the prompt is known all the same.
    assert "gen_ai.usage.cache_read.input_tokens" not in stopped
    assert stopped["gen_ai.usage.input_tokens"] > 0


async def test_ids_of_reasoning_are_part_of_the_output(apis: Apis, spans: Spans) -> None:
    await apis.post(CHAT, asking(CHAT), "<think>\nhm, well\n</think>\n\nHello.")

    told = attributes_of(spans.one("chat"))
    assert 0 < told["gen_ai.usage.reasoning.output_tokens"] < told["gen_ai.usage.output_tokens"]


async def test_generation_of_no_ids_has_its_usage_and_no_time_to_the_first(
    apis: Apis, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended() -> AsyncGenerator[GenerationEnd]:
        yield GenerationEnd("stop", None, Timings(9, 0, 0, 0, 0))

    @asynccontextmanager
    async def generate(_request: GenerateRequest) -> AsyncGenerator[Any]:
        yield ended()

    monkeypatch.setattr(apis.engine, "generate", generate)
    await apis.post(CHAT, asking(CHAT))

    told = attributes_of(spans.one("chat"))
    assert told["gen_ai.usage.input_tokens"] > 0
    assert told["gen_ai.usage.output_tokens"] == 0
    assert "gen_ai.response.time_to_first_chunk" not in told


async def left(apis: Apis, path: str, *says: str, stops: bool = False, ends: bool = False) -> list[dict[str, Any]]:
    """Ask for a stream, and leave once the engine hangs behind its first ids. Returns what was sent.

    `stops`: the gateway stops then, and its client stays; `ends`: the engine does not hang, and a tool does instead.
    """
    apis.engine.texts = list(says)
    hangs, sent = anyio.Event(), list[dict[str, Any]]()

    async def hang() -> None:
        hangs.set()
        if not ends:
            await anyio.sleep_forever()

    apis.engine.instead_of_end = hang
    body = json.dumps(whole_body(path, asking(path, stream=True))).encode()
    received = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        if (message := next(received, None)) is None:
            await hangs.wait()
            await anyio.wait_all_tasks_blocked()
            return await anyio.sleep_forever() if stops else {"type": "http.disconnect"}
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"traceparent", TRACEPARENT.encode())]
    scope = {"type": "http", "method": "POST", "path": path, "scheme": "http", "headers": headers, "query_string": b""}
    if stops:
        scope[EXPIRED] = hangs
    with anyio.fail_after(20):
        await apis.app(scope, receive, send)
    return sent


@pytest.mark.parametrize("path", APIS)
async def test_client_that_leaves_a_stream_ends_every_span(apis: Apis, spans: Spans, path: str) -> None:
    sent = await left(apis, path, "Hello there.")

    assert sent[0]["status"] == 200
    assert spans.tree == [(f"POST {path}", None), ("chat any", f"POST {path}")]
    assert [error_of(span) for span in spans.all] == [(StatusCode.ERROR, "cancelled")] * 2
    assert attributes_of(spans.one("POST"))["http.response.status_code"] == 200
    told = attributes_of(spans.one("chat"))
    assert told["gen_ai.response.finish_reasons"] == ("error",)
    assert told["gen_ai.usage.input_tokens"] == len(TINY.encode(apis.engine.prompts[0], specials=True))
    assert told["gen_ai.usage.output_tokens"] > 0
    assert not get_current_span().get_span_context().is_valid


async def test_gateway_that_stops_within_a_stream_ends_every_span(apis: Apis, spans: Spans) -> None:
    await left(apis, CHAT, "Hello there.", stops=True)

    assert spans.tree == [(f"POST {CHAT}", None), ("chat any", f"POST {CHAT}")]
    assert error_of(spans.one("POST")) == (StatusCode.ERROR, "EngineUnavailable")
    assert error_of(spans.one("chat")) == (StatusCode.ERROR, "cancelled")


async def test_client_that_leaves_during_a_call_ends_every_span(spans: Spans) -> None:
    hangs = UpstreamConfig("up", sys.executable, (str(SAYS.with_name("hangs.py")),))
    async with running(config=GatewayConfig(upstreams=(hangs,)), tracing=spans.tracing) as apis:
        await left(apis, CHAT, CALL, ends=True)

    tree = [("chat any", f"POST {CHAT}"), ("execute_tool say", f"POST {CHAT}"), ("tools/call say", "execute_tool say")]
    assert spans.tree == [(f"POST {CHAT}", None), *tree]
    assert [error_of(span) for span in spans.all if span.name != "chat any"] == [(StatusCode.ERROR, "cancelled")] * 3
    assert error_of(spans.one("chat")) == WELL


def fails(error: Exception) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


@asynccontextmanager
async def is_away(_request: GenerateRequest) -> AsyncGenerator[Any]:
    raise EngineUnavailable("the engine is away")
    yield


@pytest.mark.parametrize("path", APIS)
async def test_engine_that_fails_within_a_stream_ends_every_span_with_the_error(
    apis: Apis, spans: Spans, path: str
) -> None:
    apis.engine.instead_of_end = fails(EngineUnavailable("the engine broke off at 'a secret'"))
    answer = await apis.post(path, asking(path, stream=True), "Hello there.")

    assert answer.status_code == 200
    assert spans.tree == [(f"POST {path}", None), ("chat any", f"POST {path}")]
    assert [error_of(span) for span in spans.all] == [(StatusCode.ERROR, "EngineUnavailable")] * 2
    assert attributes_of(spans.one("chat"))["gen_ai.response.finish_reasons"] == ("error",)
    assert all("secret" not in span.to_json() for span in spans.all)


@pytest.mark.parametrize("path", APIS)
async def test_engine_that_fails_before_an_answer_is_an_error_of_the_server(
    apis: Apis, spans: Spans, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apis.engine, "generate", is_away)
    answer = await apis.post(path, asking(path))

    assert attributes_of(spans.one("POST"))["http.response.status_code"] == answer.status_code >= 500
    assert [error_of(span) for span in spans.all] == [(StatusCode.ERROR, "EngineUnavailable")] * 2
    assert not [name for name in attributes_of(spans.one("chat")) if name.startswith("gen_ai.usage")]


async def test_request_that_the_engine_finds_wrong_is_no_failure_of_the_server(apis: Apis, spans: Spans) -> None:
    apis.engine.instead_of_end = fails(RequestInvalid("no"))
    answer = await apis.post(CHAT, asking(CHAT), "")

    assert answer.status_code == 400
    assert error_of(spans.one("POST")) == WELL
    assert error_of(spans.one("chat")) == (StatusCode.ERROR, "RequestInvalid")


async def test_answer_in_frames_is_traced_like_any_other(apis: Apis, spans: Spans) -> None:
    answer = await apis.post(CHAT, asking(CHAT, stream=True, stream_format="msgpack"), "Hello.")

    assert answer.headers["content-type"] != "text/event-stream; charset=utf-8"
    assert spans.tree == [(f"POST {CHAT}", None), ("chat any", f"POST {CHAT}")]
    assert attributes_of(spans.one("chat"))["gen_ai.response.finish_reasons"] == ("stop",)


@pytest.mark.parametrize("path", APIS)
async def test_refused_request_is_a_span_without_a_failure_of_the_server(apis: Apis, spans: Spans, path: str) -> None:
    answer = await apis.post(path, {"secret": 1, "temperature": "a secret"}, traceparent=TRACEPARENT)

    assert answer.status_code == 400
    assert spans.tree == [(f"POST {path}", None)]
    assert error_of(spans.one("POST")) == WELL
    assert attributes_of(spans.one("POST"))["http.response.status_code"] == 400
    assert "secret" not in spans.one("POST").to_json()


async def test_other_requests_have_no_span(apis: Apis, spans: Spans) -> None:
    await apis.http.get(CHAT)
    await apis.post("/v1/messages/count_tokens", asking(MESSAGES))

    assert spans.all == ()


async def test_contents_are_in_no_span(with_tool: Apis, spans: Spans) -> None:
    for path in APIS:
        await with_tool.post(path, asking(path, "secret of the prompt", stream=True), CALL, "secret of the answer")

    assert len(spans.all) == 15
    assert all("secret" not in span.to_json() for span in spans.all)


@pytest.mark.parametrize("model", ["a\nb\x1b", "m" * 3000])
async def test_strange_name_of_a_model_breaks_no_span(apis: Apis, spans: Spans, model: str) -> None:
    apis.engine.texts = ["Hello."]
    body = json.dumps(whole_body(CHAT, asking(CHAT, model=model)))
    answer = await apis.http.post(CHAT, content=body, headers={"content-type": "application/json"})

    assert answer.status_code == 200
    span = spans.one("chat")
    assert len(span.name) < 200
    assert span.name.isprintable()
    assert attributes_of(span)["gen_ai.request.model"] == span.name.removeprefix("chat ")


async def test_call_of_a_tool_that_there_is_not_is_a_call_that_failed(with_tool: Apis, spans: Spans) -> None:
    call = CALL.replace('"say"', json.dumps("nope"))
    await with_tool.post(CHAT, asking(CHAT), call, "Done.")

    span = spans.one("execute_tool")
    assert error_of(span) == (StatusCode.ERROR, "refused")
    assert span.name == "execute_tool nope"
    assert error_of(spans.one("POST")) == WELL


async def test_conversation_keeps_its_id_from_request_to_request(apis: Apis, spans: Spans) -> None:
    first = asking(CHAT, "one")["messages"]
    continued = [*first, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "two"}]
    await apis.post(CHAT, {"messages": first}, "Hello.")
    await apis.post(CHAT, {"messages": continued}, "Again.")
    more = [*continued, {"role": "assistant", "content": "Again."}, {"role": "user", "content": "three"}]
    await apis.post(CHAT, {"messages": more}, "Still.")
    await apis.post(CHAT, asking(CHAT, "another"), "Hello.")
    begun = [*first, {"role": "assistant", "content": "He"}]
    await apis.post(CHAT, {"messages": begun, "continue_final_message": True, "add_generation_prompt": False}, "llo.")

    one, two, three, other, none = [attributes_of(span).get("gen_ai.conversation.id") for span in spans.named("chat")]
    assert one is not None
    assert (one == two == three, one == other, none) == (True, False, None)


async def test_requests_at_the_same_time_are_of_their_own_traces(with_tool: Apis, spans: Spans) -> None:
    # Each generation takes the next text, whoever asks: all of them are the same.
    with_tool.engine.texts = ["Hello."] * 8

    async def ask(number: int) -> None:
        headers = {"traceparent": f"00-{number:032x}-{PARENT}-01"}
        await with_tool.http.post(CHAT, json=whole_body(CHAT, asking(CHAT, str(number))), headers=headers)

    async with anyio.create_task_group() as tasks:
        for number in range(1, 9):
            tasks.start_soon(ask, number)

    parents = {span.context.span_id: span.context.trace_id for span in spans.named("POST") if span.context}
    assert sorted(parents.values()) == list(range(1, 9))
    for span in spans.named("chat"):
        assert span.parent is not None
        assert span.context is not None
        assert parents.pop(span.parent.span_id) == span.context.trace_id


@pytest.mark.parametrize(
    ("error", "status", "kind"), [(CancelledError(), 499, "cancelled"), (None, 503, "503"), (None, None, None)]
)
async def test_answer_that_never_began_says_what_is_known_of_it(
    spans: Spans, error: BaseException | None, status: int | None, kind: str | None
) -> None:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if error is not None:
            note_failure(scope, error)
        if status is not None:
            await send({"type": "http.response.start", "status": status})

    async def send(_message: Any) -> None:
        """Nobody reads it."""

    scope = {"type": "http", "method": "POST", "path": CHAT, "scheme": "http", "headers": []}
    await TracedRequests(app, spans.tracing, (CHAT,))(scope, anyio.sleep_forever, send)

    assert attributes_of(spans.one("POST")).get("error.type") == kind
    assert attributes_of(spans.one("POST")).get("http.response.status_code") == status


async def test_replica_that_a_request_is_sent_on_to_gets_the_span_of_the_request(spans: Spans) -> None:
    told: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        told.extend(scope["headers"])

    headers = [(b"traceparent", TRACEPARENT.encode()), (b"tracestate", b"a=1"), (b"baggage", b"user=ada"), (b"x", b"y")]
    scope = {"type": "http", "method": "POST", "path": CHAT, "scheme": "http", "headers": headers}
    never: Any = None
    await TracedRequests(app, spans.tracing, (CHAT,))(scope, never, never)

    context = spans.one("POST").context
    assert context is not None
    assert dict(told) == {
        b"traceparent": f"00-{TRACE}-{format_span_id(context.span_id)}-01".encode(),
        b"tracestate": b"a=1",
        b"baggage": b"user=ada",
        b"x": b"y",
    }
    assert len(told) == 4
    assert scope["headers"] == headers


async def test_completion_is_a_span_with_its_figures_and_without_its_text(apis: Apis, spans: Spans) -> None:
    asked = {"prompt": "Once upon a secret", "max_tokens": 900, "temperature": 0.5}
    answer = await apis.post(COMPLETIONS, asked, "time there was a secret", traceparent=TRACEPARENT)

    assert answer.status_code == 200
    assert spans.tree == [(f"POST {COMPLETIONS}", None), ("text_completion any", f"POST {COMPLETIONS}")]
    span = spans.one("text_completion")
    usage, found = answer.json()["usage"], attributes_of(span)
    assert span.kind is SpanKind.CLIENT
    assert found["gen_ai.operation.name"] == "text_completion"
    assert found["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert found["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert found["gen_ai.usage.cache_read.input_tokens"] == 0
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert (found["gen_ai.request.max_tokens"], found["gen_ai.request.temperature"]) == (900, 0.5)
    assert "secret" not in str(found)


@pytest.mark.parametrize(("path", "kind"), [(CHAT, "chat"), (COMPLETIONS, "text_completion")])
async def test_what_the_engine_does_is_a_child_of_its_span(apis: Apis, spans: Spans, path: str, kind: str) -> None:
    asked = {"prompt": "Once", "max_tokens": 900} if path == COMPLETIONS else asking(path)
    await apis.post(path, asked, "Done.", traceparent=TRACEPARENT, tracestate="a=1")

    context = spans.one(kind).context
    assert context is not None
    parent = f"00-{TRACE}-{format_span_id(context.span_id)}-01"
    assert apis.engine.traces == [{"traceparent": parent, "tracestate": "a=1"}]


async def test_nothing_is_sent_with_generations_without_tracing() -> None:
    async with running() as untraced:
        await untraced.post(CHAT, asking(CHAT), "Done.", traceparent=TRACEPARENT)
        assert untraced.engine.traces == [{}]


async def test_completion_that_breaks_off_is_a_failed_span(apis: Apis, spans: Spans) -> None:
    apis.engine.instead_of_end = fails(EngineUnavailable("it broke off"))
    await apis.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 900}, "upon")

    found = attributes_of(spans.one("text_completion"))
    assert error_of(spans.one("text_completion")) == (StatusCode.ERROR, "EngineUnavailable")
    assert found["gen_ai.response.finish_reasons"] == ("error",)
    assert "gen_ai.usage.input_tokens" not in found


@pytest.mark.parametrize(("says", "status", "ended"), [("x", 200, WELL), ("", 503, (StatusCode.ERROR, "503"))])
async def test_embeddings_are_a_span(apis: Apis, spans: Spans, says: str, status: int, ended: Any) -> None:
    answer = await apis.post(EMBEDDINGS, {"input": ["a secret", "b"]}, *([says] if says else []))

    assert answer.status_code == status
    assert spans.tree == [(f"POST {EMBEDDINGS}", None), ("embeddings any", f"POST {EMBEDDINGS}")]
    found = attributes_of(spans.one("embeddings"))
    assert ("gen_ai.usage.input_tokens" in found) == (status == 200)
    assert "secret" not in str(found)
    assert error_of(spans.one("POST")) == ended
