"""The life of one engine's client: it is proven, asked over connections that are known, and found lost.

Turns `GenerateRequest` into a streamed request and the lines of its answer into `Generated` and `GenerationEnd`.
Everything goes over connections on which it has been seen which engine answers: once an engine is proven (`prove`),
each new connection is compared with it before it is used, and where a connection ended unasked the proof is run again.
`connections.py` keeps them. What is asked, and how the lines are read, says the package of each engine.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from gateway.engine.http.answers import EVENT_FIELDS, EventReader, error_of_answer
from gateway.engine.http.connections import Connections
from gateway.engine.http.event_stream import MAX_LINE, Answer, LineOverLimit, StreamSilent
from gateway.engine.http.questions import Ask
from gateway.engine.interface import (
    Engine,
    EngineFacts,
    GenerateRequest,
    GenerationEnd,
    GenerationEvent,
    Proof,
    Provable,
    Proven,
    SlotKeeper,
    Timings,
)
from gateway.errors import EngineRefused, EngineUnavailable, GatewayError
from gateway.http1.connection import Connection
from gateway.http1.faults import LinkLost, NoAnswer
from gateway.observe.logs import get_logger
from leaf_sdk.vocab import TokenMap

_HEALTH_TIME = 2.0
_COMMENTS_TIME = 3600.0
"""Seconds for which comments alone keep a generation waiting: the longest prompt is processed in less."""
_ACCOUNT_TIME = 10.0
"""Seconds that the engine's account may take once all ids are here."""

log = get_logger("engine")


@dataclass(frozen=True, slots=True)
class Sent:
    """A generation as one kind of engine is asked for it."""

    path: str
    body: bytes
    stream: EventReader
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class EngineClient(Engine, ABC):
    """Client of one server. Close it with `aclose`."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        idle_timeout: float = 60.0,
        token_map: TokenMap | None = None,
        on_loss: Callable[[], None] = lambda: None,
        on_end: Callable[[Timings], None] = lambda timings: None,
        keep_streams: bool = False,
    ) -> None:
        """Ask nothing yet.

        Args:
            url: before the path of every request.
            api_key: what the server asks for.
            idle_timeout: seconds of silence that are tolerated.
            token_map: by which ids are read until `prove` brings one.
            on_loss: hears that a connection has ended unasked, or that another engine answers.
            on_end: hears what a generation that has ended took.
            keep_streams: whether a connection is used again behind a stream that came to its end.
        """
        self.url = url.rstrip("/")
        self._token_map = token_map
        self._on_loss = on_loss
        self._on_end = on_end
        self._proof: Proof | None = None
        self._facts: EngineFacts | None = None
        self.is_exchanged = False
        """Whether another engine than the proven one has answered: this client is of no use any more."""
        self._heard = 0.0
        """When something last came of a generation."""
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._connections = Connections(
            *(self.url, headers),
            idle_timeout=idle_timeout,
            admit=self._admit,
            on_loss=on_loss,
            keep_streams=keep_streams,
        )

    @abstractmethod
    def _questions(self, ask: Ask) -> Provable:
        """Questions to this engine, over what carries them."""

    @abstractmethod
    def _sent(self, request: GenerateRequest) -> Sent:
        """Say how a generation is asked for."""

    @property
    def keeper(self) -> SlotKeeper | None:
        """The same engine, where its caches are slots that can be named."""
        return None

    async def aclose(self) -> None:
        """Close the connections."""
        self._connections.close()

    async def prove(self, proof: Proof) -> Proven:
        """Run a proof on a new connection, and hold every later one to what it found. Raises what the proof raises."""
        with self._errors():
            async with self._connections.fresh() as connection, self._connections.in_time("the proof"):
                proven = await proof(self._questions_on(connection))
        self._proof, self._facts, self._token_map = proof, proven.facts, proven.token_map
        self._connections.allow(proven.facts.slots)
        return proven

    async def healthy(self) -> bool:
        """`GET /health`; 503 while the model is still loading. It keeps the connections that rest.

        One that does not answer in time, since its machine is busy, and generates meanwhile, is up.
        """
        if self.is_exchanged:
            return False
        asked = monotonic()
        try:
            with self._errors():
                async with asyncio.timeout(_HEALTH_TIME):
                    return await self._connections.refresh("/health")
        except TimeoutError:
            return self._heard > asked
        except GatewayError:
            return False

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        """A generation, streamed. Leaving the context before the end ends the engine's work on it."""
        sent = self._sent(request)
        with self._errors():
            async with self._connections.streamed("POST", sent.path, sent.body, sent.headers) as answer:
                if answer.status != 200:
                    raise error_of_answer(answer.status, await answer.body())
                events = self._events(answer, sent.stream)
                try:
                    yield events
                finally:
                    await events.aclose()

    async def _events(self, answer: Answer, stream: EventReader) -> AsyncGenerator[GenerationEvent]:
        begun = heard = monotonic()
        first: float | None = None
        while lines := await (self._last_lines(answer) if stream.is_full else answer.lines()):
            self._heard = monotonic()
            told = False
            for event in stream.feed(lines):
                told = True
                if isinstance(event, GenerationEnd):
                    if event.told:
                        answer.saw_end()
                    else:
                        log.warning("the engine went on past max_tokens, so the connection was closed", url=self.url)
                    end = _timed(event, begun, first)
                    self._on_end(end.timings)
                    yield end
                    return
                yield event
            if told:
                heard = monotonic()
                first = first or heard
            elif monotonic() - heard > _COMMENTS_TIME:
                raise StreamSilent(f"nothing but comments for {_COMMENTS_TIME:g} s")
        if stream.is_full:
            log.warning(
                "the engine sent all ids but did not end its answer, so the connection was closed", url=self.url
            )
            yield stream.cut()
            return
        raise EngineUnavailable(f"the engine at {self.url!r} broke off in the middle of its answer; ask again")

    async def _last_lines(self, answer: Answer) -> list[bytes]:
        """What comes behind all ids that were asked for; nothing where the engine does not come to an end."""
        try:
            async with asyncio.timeout(_ACCOUNT_TIME):
                # Comments, which keep a connection alive, are no account.
                while lines := await answer.lines():
                    if any(line.startswith(EVENT_FIELDS) for line in lines):
                        return lines
        except TimeoutError:
            pass
        return []

    async def _admit(self, connection: Connection, *, doubted: bool) -> None:
        """See that the engine on a new connection is the proven one."""
        if self._proof is None or self._facts is None:
            return
        questions = self._questions_on(connection)
        # What one process says of itself another may say too, unless it tells what it drew at its start.
        prove = doubted or self._facts.start_marker is None
        try:
            facts = (await self._proof(questions)).facts if prove else await questions.facts()
        except EngineUnavailable:
            raise
        except EngineRefused as error:
            # It does not even answer as an engine does.
            self._exchange()
            raise EngineUnavailable(f"something else answers at {self.url!r} than before: {error.message}") from error
        except GatewayError:
            self._exchange()
            raise
        if facts != self._facts:
            self._exchange()
            raise EngineUnavailable(
                f"another engine answers at {self.url!r} than before ({facts.model!r}); it is being proven, ask again"
            )

    def _exchange(self) -> None:
        self.is_exchanged = True
        self._on_loss()

    def _questions_on(self, connection: Connection) -> Provable:
        return self._questions(partial(self._ask_on, connection))

    async def _ask_on(self, connection: Connection, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        with self._errors():
            return await self._connections.ask_on(connection, method, path, body)

    async def _ask_anywhere(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        with self._errors():
            return await self._connections.ask(method, path, body)

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Around all that is sent: an engine that went away meanwhile is named so, as errors of the transport are."""
        if self.is_exchanged or self._connections.closed:
            # A conversation that waited for a tool while the engine was started again holds the client of before.
            raise EngineUnavailable(f"the engine at {self.url!r} went away in the meantime; ask again")
        with transport_errors(self.url):
            yield


@contextmanager
def transport_errors(url: str) -> Generator[None]:
    """The one place where transport errors become ours."""
    try:
        yield
    except StreamSilent as error:
        raise EngineUnavailable(f"the engine at {url!r} did not answer in time: {error}") from error
    except (LinkLost, NoAnswer) as error:
        raise EngineUnavailable(f"the engine at {url!r} can't be reached: {error}") from error
    except LineOverLimit as error:
        raise EngineRefused(f"the engine sent a line of more than {MAX_LINE} characters", 502) from error


def _timed(end: GenerationEnd, begun: float, first: float | None) -> GenerationEnd:
    """The end with times by our clock, where the engine tells none."""
    told = end.timings
    if first is None or told.prompt_seconds or told.generate_seconds:
        return end
    seconds = replace(told, prompt_seconds=first - begun, generate_seconds=monotonic() - first)
    return replace(end, timings=seconds)
