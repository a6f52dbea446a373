"""The client of an engine at its worst: away, silent, too busy, cut off, without an end; no engine is needed."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import anyio
import pytest

from bench.processes import free_port
from gateway.engine.interface import Activity, EngineFacts, GenerateRequest, Proven
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.engine.wire.vllm_client import Vllm
from gateway.errors import EngineRefused, EngineUnavailable, MapDiffers
from leaf_sdk.testing import tiny_map
from tests.gateway.engine.engines import collect, listening

pytestmark = pytest.mark.anyio

PROMPT = [1, 520, 198]


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


async def test_connection_of_vllm_is_used_again_behind_a_stream() -> None:
    asked: list[anyio.abc.SocketStream] = []
    body = (
        b'data: {"choices":[{"index":0,"token_ids":[5],"finish_reason":"length"}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\ndata: [DONE]\n\n'
    )

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream):
                while await stream.receive():
                    asked.append(stream)
                    await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    async with listening(answer) as url:
        client = Vllm(url, at_once=2)
        for _ in range(3):
            await collect(client, GenerateRequest(PROMPT, None, 1))
        await client.aclose()

    assert asked == [asked[0]] * 3


async def test_engine_whose_client_was_closed_in_the_meantime_is_unavailable() -> None:
    client = LlamaCpp("http://127.0.0.1:9")
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


async def test_all_that_is_asked_of_an_engine_can_be_ended_at_once() -> None:
    asked = [anyio.Event(), anyio.Event()]

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
                next(each for each in asked if not each.is_set()).set()
                await stream.receive()

    told: list[str] = []
    async with listening(answer) as url, anyio.create_task_group() as tasks:
        client = LlamaCpp(url)

        async def ask(question: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(EngineUnavailable) as error:
                await question()
            told.append(error.value.message)

        tasks.start_soon(ask, lambda: client.tokenize("x", specials=False))
        tasks.start_soon(ask, lambda: collect(client, GenerateRequest(PROMPT, None, 4)))
        with anyio.fail_after(60):
            for each in asked:
                await each.wait()
        client.end_all("its loop is stuck")
    await client.aclose()

    assert ["its loop is stuck" in each for each in told] == [True, True]


async def test_activity_is_what_the_engine_says_that_it_is_at_work_on() -> None:
    slot = {
        "id": 0,
        "id_task": 3,
        "is_processing": True,
        "n_prompt_tokens_processed": 5,
        "next_token": {"n_decoded": 2},
    }
    body = json.dumps([slot]).encode()

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    async with listening(answer) as url:
        client = LlamaCpp(url)
        assert await client.work() == Activity(((0, 3, 5, 2),), prefills=False)
        await client.aclose()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("work", "idle", "limit"),
    [
        (None, 0.02, "0.1"),
        (Activity((), prefills=True), 0.02, "0.1"),
        (Activity((), prefills=True), 0.2, "0.2"),
        (Activity((), prefills=False), 0.02, "0.02"),
    ],
    ids=["not known", "a prompt in the step", "the timeout is longer", "no prompt"],
)
async def test_generation_that_gets_comments_only_waits_longer_while_a_prompt_may_be_in_the_step(
    monkeypatch: pytest.MonkeyPatch, work: Activity | None, idle: float, limit: str
) -> None:
    monkeypatch.setattr("gateway.engine.wire.engine_client.PROMPT_STEP", 0.1)

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(HEAD + told(1, 1))
            while True:
                await stream.send(b"3\r\n:\n\n\r\n")
                await anyio.sleep(0.005)

    async def tell() -> Activity | None:
        return work

    async with listening(answer) as url:
        client = LlamaCpp(url)
        # Of comments alone: a silence of this length is nothing on a busy machine.
        monkeypatch.setattr(client, "_idle", idle)
        monkeypatch.setattr(client, "work", tell)
        monkeypatch.setattr(LlamaCpp, "_is_waited_for", True)
        await client.activity()
        with anyio.fail_after(30), pytest.raises(EngineUnavailable, match=f"only keep-alive comments for {limit} s"):
            await collect(client, GenerateRequest(PROMPT, None, 4))
        await client.aclose()


FACTS = EngineFacts("m", None, "", False, 10, 100, 2, (), start_marker="first")


class ToldOf:
    """What an engine says of itself, time after time."""

    def __init__(self, *answers: EngineFacts | Exception) -> None:
        self._answers = list(answers)

    async def facts(self) -> EngineFacts:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def start_marker(self) -> str | None:
        return (await self.facts()).start_marker


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (replace(FACTS, start_marker="second"), "was replaced"),
        (EngineRefused("the engine answered 404", 404), "is no longer an engine"),
        (MapDiffers("the map differs", sample="x", map_ids=[1], engine_ids=[2]), "the map differs"),
    ],
)
async def test_engine_that_another_took_the_place_of_is_used_no_more(now: EngineFacts | Exception, words: str) -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(HEAD)
            await stream.receive()

    async def prove(questions: object) -> Proven:
        return Proven(await engine.facts(), tiny_map())

    losses: list[bool] = []
    engine = ToldOf(FACTS, now)
    async with listening(answer) as url:
        client = LlamaCpp(url, on_loss=lambda: losses.append(client.is_replaced))
        client._questions = lambda ask: engine  # pyright: ignore[reportAttributeAccessIssue]
        await client.prove(prove)
        with anyio.fail_after(30), pytest.raises((EngineUnavailable, MapDiffers), match=words):
            async with client._connections.streamed("POST", "/completion", b"{}", {}):
                await client.tokenize("x", specials=False)

        assert losses[0] is True
        assert not await client.healthy(60.0)
        await client.aclose()
