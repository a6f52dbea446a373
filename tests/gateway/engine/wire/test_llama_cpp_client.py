"""The client of a real llama.cpp server: ids in, ids out, errors named."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial

import anyio
import pytest

from bench.processes import free_port
from gateway.engine.interface import Engine, Generated, GenerateRequest, GenerationEnd, GenerationEvent, Sampling
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.engine.wire.vllm_client import Vllm
from gateway.errors import EngineRefused, EngineUnavailable
from leaf_sdk.vocab import TokenMap
from tests.gateway.engine.engines import listening

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

PROMPT = [1, 520, 198]
TORTURE = "Zürich 東京 😀 ok\n"


@pytest.fixture
async def engine(engine_url: str, model_map: TokenMap) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(engine_url, token_map=model_map)
    yield client
    await client.aclose()


async def collect(engine: Engine, request: GenerateRequest) -> tuple[list[int], GenerationEnd]:
    ids: list[int] = []
    end: GenerationEvent | None = None
    async with engine.generate(request) as events:
        async for event in events:
            if isinstance(event, Generated):
                ids += event.ids
            end = event
    assert isinstance(end, GenerationEnd)
    return ids, end


def forced(text: str, *, slot: int = 0, max_tokens: int = 64) -> GenerateRequest:
    escaped = text.replace("\n", "\\n")
    return GenerateRequest(PROMPT, slot, max_tokens, Sampling(temperature=0), grammar=f'root ::= "{escaped}"')


async def test_the_ids_we_hold_are_the_ids_in_the_engines_cache(engine: LlamaCpp, model_map: TokenMap) -> None:
    ids, end = await collect(engine, forced(TORTURE))

    assert end.ended_by == ids[-1]
    assert model_map.decode(ids[:-1]) == TORTURE
    assert len(ids) == end.timings.generated_n
    assert end.repaired == 5
    held = [*PROMPT, *ids[:-1]]
    _, after = await collect(engine, GenerateRequest([*held, 198, 198], 0, 1))
    assert after.timings.cache_n == len(held)


async def test_a_character_cut_off_by_the_length_limit_is_reported_as_missed(
    engine: LlamaCpp, model_map: TokenMap
) -> None:
    ids, end = await collect(engine, forced("Z 東京", max_tokens=4))

    assert end.reason == "length"
    assert end.ended_by is None
    assert end.missed == 4 - len(ids) > 0
    assert model_map.decode(ids) == "Z "


async def test_leaving_the_stream_frees_the_slot(engine: LlamaCpp) -> None:
    endless = GenerateRequest(PROMPT, 1, 4000, Sampling(temperature=0), grammar='root ::= "a"+')
    async with engine.generate(endless) as events:
        await anext(aiter(events))
    with anyio.fail_after(20):
        ids, _ = await collect(engine, forced("ok", slot=1))
    assert ids


async def test_facts_name_the_model_without_its_path(engine: LlamaCpp) -> None:
    facts = await engine.facts()

    assert facts.model == "SmolLM2-135M-Instruct.Q4_1"
    assert facts.slots == 2
    assert facts.context == 2048
    assert facts.vocabulary == 49152
    assert not facts.supports_tools
    assert "<|im_start|>" in facts.chat_template


async def test_the_engines_own_complaint_is_passed_on(engine: LlamaCpp) -> None:
    with pytest.raises(EngineRefused, match="invalid tokens") as refused:
        await collect(engine, GenerateRequest([1, 99_999_999], 0, 4))
    assert refused.value.status == 400


async def test_a_broken_grammar_is_refused_and_not_ignored(engine: LlamaCpp) -> None:
    with pytest.raises(EngineRefused, match="grammar"):
        await collect(engine, GenerateRequest(PROMPT, 0, 4, grammar="root ::= ("))


async def test_an_engine_that_is_not_there_is_unavailable() -> None:
    port = free_port()
    client = LlamaCpp(f"http://127.0.0.1:{port}")
    with pytest.raises(EngineUnavailable, match=str(port)):
        await client.facts()
    assert not await client.healthy(60.0)
    await client.aclose()


@pytest.mark.parametrize("generates", [True, False])
async def test_engine_that_is_too_busy_for_a_look_is_up_while_it_generates(*, generates: bool) -> None:
    looked, done = anyio.Event(), anyio.Event()

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            asked = b""
            with suppress(anyio.EndOfStream):
                asked = await stream.receive()
            if asked.startswith(b"GET /health"):
                looked.set()
                await done.wait()
                return
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            await looked.wait()
            if generates:
                await stream.send(b'data: {"content":"a","tokens":[1],"stop":false,"tokens_predicted":1}\n\n')
            await done.wait()

    async def generate() -> None:
        with suppress(EngineUnavailable):
            await collect(client, GenerateRequest([1], None, 4))

    async with listening(serve) as url, anyio.create_task_group() as tasks:
        client = LlamaCpp(url)
        tasks.start_soon(generate)
        assert await client.healthy(2.0 if generates else 0.1) == generates
        done.set()
        await client.aclose()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (b'data: {"content":"a","tokens":[1],"stop":false,"tokens_predicted":1}\n\n', EngineUnavailable, "middle of"),
        (b"data: not json\n\n", EngineRefused, "not JSON"),
        (b'data: {"error":{"code":500,"message":"out of memory"}}\n\n', EngineRefused, "out of memory"),
        (b"data: " + b"x" * (2 << 20) + b"\n\n", EngineRefused, "bytes"),
    ],
)
async def test_a_stream_that_goes_wrong_is_an_error_and_never_an_end(
    body: bytes, error: type[Exception], words: str
) -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body)

    async with listening(answer) as url:
        client = LlamaCpp(url)
        with pytest.raises(error, match=words):
            await collect(client, GenerateRequest(PROMPT, 0, 4))
        await client.aclose()


@pytest.mark.parametrize("make", [LlamaCpp, partial(Vllm, at_once=2)])
async def test_trace_context_of_a_generation_is_in_its_headers(make: Callable[[str], LlamaCpp | Vllm]) -> None:
    heard: list[bytes] = []

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            heard.append(await stream.receive())
            await stream.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async with listening(answer) as url:
        client = make(url)
        for trace in ({}, {"traceparent": "00-1-2-01"}):
            with suppress(EngineRefused, EngineUnavailable):
                await collect(client, GenerateRequest(PROMPT, None, 4, trace=trace))
        await client.aclose()

    assert [b"traceparent: 00-1-2-01\r\n" in each for each in heard] == [False, True]


async def test_engine_whose_client_was_closed_in_the_meantime_is_unavailable(engine_url: str) -> None:
    client = LlamaCpp(engine_url)
    await client.aclose()

    with pytest.raises(EngineUnavailable, match="try again"):
        await client.tokenize("x", specials=False)
    with pytest.raises(EngineUnavailable, match="try again"):
        await collect(client, GenerateRequest(PROMPT, 0, 1))


def told(token: int, number: int) -> bytes:
    message = {"content": "a", "tokens": [token], "stop": False, "tokens_predicted": number}
    data = b"data: " + json.dumps(message).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("stuck", ["goes on for ever", "falls silent"])
async def test_stream_without_an_end_is_ended_at_max_tokens(stuck: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.engine.wire.engine_client._ACCOUNT_TIME", 0.05)
    left = anyio.Event()

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                await stream.receive()
                head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                await stream.send(head + b"".join(told(n, n) for n in range(1, 5)))
                while stuck == "goes on for ever":
                    await stream.send(told(7, 7))
                await stream.receive()
            left.set()

    async with listening(answer) as url:
        client = LlamaCpp(url)
        with anyio.fail_after(60):
            ids, end = await collect(client, GenerateRequest(PROMPT, None, 4))
            # The engine is told by the connection's end.
            await left.wait()
        await client.aclose()

    assert ids == [1, 2, 3, 4]
    assert (end.reason, end.reported) == ("length", False)
