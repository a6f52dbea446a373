"""Answers as they are shown: when a reply is made, and what its stream begins with."""

from typing import Any

import anyio
import pytest
from starlette.types import Message

from gateway.agent.events import AgentEvent, Emit, Finished
from gateway.errors import EngineUnavailable
from gateway.serve.generation.answers import Answering, ApiForm, StreamedAnswer, WholeAnswer
from gateway.serve.http.middleware import EXPIRED
from gateway.toolcalls.stream.output_events import Content


class _Reply:
    """A reply that shows what it was told."""

    def __init__(self, *pings: list[dict[str, Any]]) -> None:
        """`pings`: what it says in silence, before it says no more."""
        self.pings = list(pings)

    def begin(self) -> list[dict[str, Any]]:
        return [{"begins": True}]

    def feed(self, event: AgentEvent) -> list[dict[str, Any]]:
        return [{"says": event.text}] if isinstance(event, Content) else []

    def completion(self) -> dict[str, Any]:
        return {}

    def fail(self, error: Exception) -> list[dict[str, Any]]:
        return [{"fails": str(error)}]

    def ping(self) -> list[dict[str, Any]] | None:
        return self.pings.pop(0) if self.pings else None


class _Run:
    """One answer over ASGI, to a client that stays."""

    def __init__(self) -> None:
        self.made = 0
        self.opened = anyio.Event()
        self.sent: list[bytes] = []

    def new_reply(self) -> _Reply:
        self.made += 1
        self.opened.set()
        return _Reply()

    async def of(self, make: Any) -> list[bytes]:
        async def send(message: Message) -> None:
            self.sent.append(message.get("body", b""))

        form = ApiForm(lambda error: (500, {"fails": str(error)}))
        answer = StreamedAnswer(Answering(make, lambda outcome: None), self.new_reply, form)
        with anyio.fail_after(20):
            await answer({"type": "http"}, anyio.sleep_forever, send)
        return self.sent


pytestmark = pytest.mark.anyio
_END = Finished("stop", 1, 0, 1)


async def test_reply_is_made_once_while_the_engine_works() -> None:
    run = _Run()

    async def make(emit: Emit) -> None:
        await run.opened.wait()
        await emit(Content("Hello"))
        await emit(Content(" there"))
        await emit(_END)

    sent = await run.of(make)

    assert sent == [b"", b'data: {"begins":true}\n\ndata: {"says":"Hello"}\n\n', b'data: {"says":" there"}\n\n', b""]
    assert run.made == 1


async def test_answer_that_is_there_at_once_begins_as_any_other() -> None:
    run = _Run()

    async def make(emit: Emit) -> None:
        await emit(Content("Hello"))

    assert (await run.of(make))[1] == b'data: {"begins":true}\n\ndata: {"says":"Hello"}\n\n'
    assert run.made == 1


async def test_answer_that_fails_before_its_first_event_is_an_error_of_http() -> None:
    run = _Run()

    async def make(emit: Emit) -> None:
        await run.opened.wait()
        raise RuntimeError("the engine is gone")

    assert await run.of(make) == [b"", b'{"fails":"the engine is gone"}']


async def test_answer_that_fails_behind_its_first_event_ends_its_stream_with_the_error() -> None:
    run = _Run()

    async def make(emit: Emit) -> None:
        await emit(Content("Hello"))
        raise RuntimeError("the engine is gone")

    assert (await run.of(make))[2:] == [b'data: {"fails":"the engine is gone"}\n\n']


async def test_stop_before_a_stream_has_begun_for_a_client_that_does_not_read_is_an_error_of_http() -> None:
    waits = anyio.Event()
    sent: list[Message] = []

    async def make(emit: Emit) -> None:
        await emit(Content("Hello"))

    async def send(message: Message) -> None:
        if not waits.is_set():
            waits.set()
            await anyio.sleep_forever()
        sent.append(message)

    form = ApiForm(lambda error: (503, {"fails": str(error)}))
    answer = StreamedAnswer(Answering(make, lambda outcome: None), _Reply, form)
    with anyio.fail_after(20):
        await answer({"type": "http", EXPIRED: waits}, anyio.sleep_forever, send)

    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 503


async def test_silent_stream_says_what_its_api_has_for_that_or_a_comment() -> None:
    over = anyio.Event()
    sent: list[bytes] = []

    async def make(emit: Emit) -> None:
        await over.wait()
        await emit(Content("Hello"))

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        if sent[-1].startswith(b":"):
            over.set()

    form = ApiForm(lambda error: (500, {"fails": str(error)}))
    new_reply = lambda: _Reply([{"lives": True}], [])  # noqa: E731
    answer = StreamedAnswer(Answering(make, lambda outcome: None), new_reply, form, silence=0.001)
    with anyio.fail_after(20):
        await answer({"type": "http"}, anyio.sleep_forever, send)

    begins, says = b'data: {"begins":true}\n\ndata: {"lives":true}\n\n', b'data: {"says":"Hello"}\n\n'
    assert sent == [b"", begins, b": still at work\n\n", says, b""]


async def test_stream_that_has_not_been_silent_for_so_long_says_nothing_of_itself() -> None:
    sent: list[bytes] = []

    async def make(emit: Emit) -> None:
        await anyio.wait_all_tasks_blocked()
        await emit(Content("Hello"))

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    form = ApiForm(lambda error: (500, {"fails": str(error)}))
    new_reply = lambda: _Reply([{"lives": True}])  # noqa: E731
    answer = StreamedAnswer(Answering(make, lambda outcome: None), new_reply, form, silence=3600)
    with anyio.fail_after(20):
        await answer({"type": "http"}, anyio.sleep_forever, send)

    assert sent == [b"", b'data: {"begins":true}\n\ndata: {"says":"Hello"}\n\n', b""]


async def test_answer_that_ends_while_its_stream_begins_with_a_ping_is_sent_whole() -> None:
    begins = anyio.Event()
    sent: list[Message] = []

    async def make(emit: Emit) -> None:
        await begins.wait()

    async def send(message: Message) -> None:
        begins.set()
        await anyio.wait_all_tasks_blocked()
        sent.append(message)

    form = ApiForm(lambda error: (500, {"fails": str(error)}))
    new_reply = lambda: _Reply([{"lives": True}])  # noqa: E731
    answer = StreamedAnswer(Answering(make, lambda outcome: None), new_reply, form, silence=0.001)
    with anyio.fail_after(20):
        await answer({"type": "http"}, anyio.sleep_forever, send)

    pings = b'data: {"begins":true}\n\ndata: {"lives":true}\n\n'
    assert [message.get("body") for message in sent] == [None, pings, b""]


class _Client:
    """What a client of one answer got, and whether it stays."""

    def __init__(self, *, leaves: bool = False) -> None:
        self.leaves = leaves
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        if not self.leaves:
            await anyio.sleep_forever()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def _works(emit: Emit) -> None:
    await emit(Content("Hello"))


async def _fails(emit: Emit) -> None:
    raise RuntimeError("the engine is gone")


async def _never_ends(emit: Emit) -> None:
    await anyio.sleep_forever()


def _form(status: int = 500, **more: Any) -> ApiForm:
    return ApiForm(lambda error: (status, {"fails": str(error)}), **more)


@pytest.mark.parametrize("kind", [WholeAnswer, StreamedAnswer])
@pytest.mark.parametrize(
    ("make", "leaves", "outcome"),
    [(_works, False, "ok"), (_fails, False, "engine_error"), (_never_ends, True, "cancelled")],
)
async def test_outcome_of_each_answer_is_counted_once(kind: Any, make: Any, leaves: bool, outcome: str) -> None:
    counted: list[str] = []
    client = _Client(leaves=leaves)
    with anyio.fail_after(20):
        await kind(Answering(make, counted.append), _Reply, _form())({"type": "http"}, client.receive, client.send)

    assert counted == [outcome]
    assert bool(client.sent) == (not leaves)


async def test_answer_that_a_stopping_gateway_has_no_time_for_is_an_error_that_says_so() -> None:
    expired, counted = anyio.Event(), list[str]()
    expired.set()
    client, answering = _Client(), Answering(_never_ends, counted.append)
    with anyio.fail_after(20):
        error = await answering.run({"type": "http", EXPIRED: expired}, client.receive, lambda _: _works)

    assert isinstance(error, EngineUnavailable)
    assert "the gateway is stopping" in error.message
    assert (counted, answering.client_left) == (["cancelled"], False)


@pytest.mark.parametrize(("status", "again"), [(500, None), (502, None), (503, "2"), (529, "2")])
async def test_error_that_may_pass_asks_to_be_tried_again_soon(status: int, again: str | None) -> None:
    client = _Client()
    answer = WholeAnswer(Answering(_fails, lambda _: None), _Reply, _form(status, headers={"x-api": "1"}))
    await answer({"type": "http"}, client.receive, client.send)

    assert (client.sent[0]["status"], client.headers.get("retry-after"), client.headers["x-api"]) == (
        status,
        again,
        "1",
    )


async def test_whole_answer_is_json_with_the_headers_of_its_api() -> None:
    client = _Client()
    answer = WholeAnswer(Answering(_works, lambda _: None), _Reply, _form(headers={"x-api": "1"}))
    await answer({"type": "http"}, client.receive, client.send)

    assert (client.sent[0]["status"], client.body) == (200, b"{}")
    assert (client.headers["content-type"], client.headers["x-api"]) == ("application/json", "1")


async def test_whole_answer_holds_what_its_events_say() -> None:
    class Told(_Reply):
        told = ""

        def feed(self, event: AgentEvent) -> list[dict[str, Any]]:
            self.told += event.text if isinstance(event, Content) else ""
            return []

        def completion(self) -> dict[str, Any]:
            return {"says": self.told}

    client = _Client()
    await WholeAnswer(Answering(_works, lambda _: None), Told, _form())({"type": "http"}, client.receive, client.send)

    assert client.body == b'{"says":"Hello"}'


async def test_stream_is_kept_by_no_cache_and_ends_with_what_its_api_ends_with() -> None:
    client = _Client()
    form = _form(last=b"data: [DONE]\n\n", headers={"x-api": "1"})
    await StreamedAnswer(Answering(_works, lambda _: None), _Reply, form)({"type": "http"}, client.receive, client.send)

    assert client.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "x-api": "1",
    }
    assert client.body.endswith(b"data: [DONE]\n\n")
    assert [message.get("more_body") for message in client.sent] == [None, True, False]


def test_events_have_their_names_where_the_api_names_them() -> None:
    chunk = {"type": "said"}

    assert _form().events([chunk, chunk]) == b'data: {"type":"said"}\n\n' * 2
    assert _form(names_events=True).events([chunk]) == b'event: said\ndata: {"type":"said"}\n\n'


def test_number_that_json_lacks_is_null_in_a_whole_answer() -> None:
    assert _form().whole({"vector": [1.0, float("inf")]}).body == b'{"vector":[1.0,null]}'
