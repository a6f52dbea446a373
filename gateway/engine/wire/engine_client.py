"""The client of one engine: the engine is proven, asked over checked connections, and found to be lost.

Turns `GenerateRequest` into a streamed request and the lines of its answer into `Generated` and `GenerationEnd`. Only
connections are used on which it is known which engine answers: once an engine is proven (`prove`), each new connection
is checked against it before it is used, and after a connection has ended unexpectedly the whole proof is run again.
`connections.py` keeps them. The package of each engine defines what is asked, and how the lines are read.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from gateway.engine.interface import (
    PROMPT_STEP,
    Activity,
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
from gateway.engine.wire.connections import Connections
from gateway.engine.wire.engine_answers import EVENT_FIELDS, Ask, EventReader, error_of_answer
from gateway.engine.wire.event_stream import MAX_LINE, EngineAnswer, LineOverLimit, StreamSilent
from gateway.errors import EngineRefused, EngineUnavailable, GatewayError
from gateway.http1.connection import Connection, LinkLost, NoAnswer
from gateway.observe.logs import get_logger
from leaf_sdk.vocab import TokenMap

_COMMENTS_TIME = 3600.0
"""Seconds for which a generation waits for its first id while only comments arrive: the longest prompt is processed in
less, and on a server that others use too it may have to wait for a slot."""
_ACCOUNT_TIME = 10.0
"""Seconds that the engine's final message may take once all ids have arrived."""

log = get_logger("engine")


@dataclass(frozen=True, slots=True)
class Sent:
    """The request for a generation, in the form that a kind of engine takes."""

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
        single_use: bool = False,
    ) -> None:
        """Ask nothing yet.

        Args:
            url: what stands before the path of every request.
            api_key: the key that the server asks for.
            idle_timeout: seconds of silence that are tolerated.
            token_map: the map by which ids are read, until `prove` finds one.
            on_loss: called when a connection has ended unexpectedly, or another engine answers.
            on_end: called with the timings of each generation that has ended.
            keep_streams, single_use: see `Connections`.
        """
        self.url = url.rstrip("/")
        self._token_map = token_map
        self._idle = idle_timeout
        self._padded = self._cache_untold = False
        """Whether it was logged that the engine's vocabulary is padded, and that it does not say what it had cached."""
        self._running = 0
        """Generations that run."""
        self._unanswered = False
        """Whether one was given up because the engine was silent, and none has had an id since."""
        self._activity: Activity | None = None
        self._on_loss = on_loss
        self._on_end = on_end
        self._single_use = single_use
        self._proof: Proof | None = None
        self._facts: EngineFacts | None = None
        self.is_replaced = False
        """Whether an engine other than the proven one has answered, so that this client can't be used any more."""
        self._heard = 0.0
        """When something of a generation last arrived."""
        self.told = 0.0
        """When a generation last had an event, by the monotonic clock; comments come from a stuck engine too."""
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._connections = Connections(
            *(self.url, headers),
            idle_timeout=idle_timeout,
            admit=self._admit,
            on_loss=on_loss,
            keep_streams=keep_streams,
            single_use=single_use,
        )

    @abstractmethod
    async def work(self) -> Activity | None:
        """Ask the engine what it is at work on; None: on nothing, or it does not say. Raises like `tokenize`."""

    @abstractmethod
    def _questions(self, ask: Ask) -> Provable:
        """Questions to this engine, sent by `ask`."""

    @abstractmethod
    def _sent(self, request: GenerateRequest) -> Sent:
        """The request for a generation."""

    async def activity(self) -> Activity | None:
        """Like `work`, for the watch over the engine. An idle one has nothing to make progress with, and is not asked:
        a llama.cpp server that sleeps, or a router that has unloaded the model, would load it to answer."""
        self._activity = await self.work() if self._is_waited_for else None
        return self._activity

    @property
    def keeper(self) -> SlotKeeper | None:
        """This engine, if its slots can be addressed."""
        return None

    def end_all(self, why: str) -> None:
        """End everything that is asked of the engine now with an error."""
        self._connections.end_all(why)

    async def aclose(self) -> None:
        """Close the connections."""
        self._connections.close()

    async def prove(self, proof: Proof) -> Proven:
        """Run a proof on a new connection, and check every later one against it. Raises what the proof raises."""
        with self._errors():
            async with self._connections.fresh() as connection, self._connections.in_time("the proof of the token map"):
                proven = await self._proven(proof, self._questions_on(connection))
        self._proof, self._facts, self._token_map = proof, proven.facts, proven.token_map
        self._connections.allow(proven.facts.slots)
        return proven

    async def healthy(self, seconds: float) -> bool:
        """`GET /health`; 503 while the model is still loading. This also keeps idle connections open.

        An engine that does not answer in time because its machine is busy, but generates in the meantime, is up.
        """
        if self.is_replaced:
            return False
        asked = monotonic()
        try:
            with self._errors():
                async with asyncio.timeout(seconds):
                    return await self._connections.refresh()
        except TimeoutError:
            return self._heard > asked
        except GatewayError:
            return False

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        """Generate, streamed. Leaving the context before the end stops the engine's work on it."""
        sent, asked = self._sent(request), monotonic()
        headers = {**sent.headers, **request.trace} if request.trace else sent.headers
        with self._errors(), self._counted():
            async with self._connections.streamed("POST", sent.path, sent.body, headers) as answer:
                if answer.status != 200:
                    raise error_of_answer(answer.status, await answer.body())
                events = self._events(answer, sent.stream, asked)
                try:
                    yield events
                finally:
                    await events.aclose()

    async def _events(self, answer: EngineAnswer, stream: EventReader, asked: float) -> AsyncGenerator[GenerationEvent]:
        begun = heard = monotonic()
        first: float | None = None
        while lines := await (self._last_lines(answer) if stream.is_full else answer.lines()):
            self._heard = monotonic()
            told = False
            for event in stream.feed(lines):
                told, self.told, self._unanswered = True, self._heard, False
                if isinstance(event, GenerationEnd):
                    if event.reported:
                        answer.saw_end()
                    else:
                        log.warning("the engine exceeded max_tokens, so the connection was closed", url=self.url)
                    end = _timed(event, asked, begun, first)
                    if end.padded and not self._padded:
                        self._padded = True
                        log.warning(
                            "the model wrote ids that only its padded vocabulary has; they have no text", url=self.url
                        )
                    if not (end.tells_cache or self._cache_untold):
                        self._cache_untold = True
                        log.warning(
                            "the engine does not say what it had cached, so no figures of its cache are shown; "
                            "vLLM says it if started with --enable-prompt-tokens-details",
                            url=self.url,
                        )
                    self._on_end(end.timings)
                    yield end
                    return
                yield event
            if told:
                heard = self.told
                first = first or heard
            elif monotonic() - heard > (limit := self._comments_time(begun=first is not None)):
                raise StreamSilent(f"it sent only keep-alive comments for {limit:g} s")
        if stream.is_full:
            log.warning(
                "the engine sent all ids but did not end its answer, so the connection was closed", url=self.url
            )
            yield stream.cut()
            return
        raise EngineUnavailable(f"the engine at {self.url!r} stopped in the middle of its answer; try again")

    def _comments_time(self, *, begun: bool) -> float:
        """Seconds for which a generation waits while only comments arrive. `begun`: whether it has had an id."""
        if not begun:
            return _COMMENTS_TIME
        # Every step of the engine brings it an id, unless a prompt of somebody else is in the step.
        prefills = self._activity is None or self._activity.prefills
        return max(self._idle, PROMPT_STEP) if prefills else self._idle

    @contextmanager
    def _counted(self) -> Generator[None]:
        self._running += 1
        try:
            yield
        except StreamSilent:
            self._unanswered = True
            raise
        finally:
            self._running -= 1

    @property
    def _is_waited_for(self) -> bool:
        """Whether a generation waits for the engine, or has waited in vain."""
        return self._running > 0 or self._unanswered

    async def _last_lines(self, answer: EngineAnswer) -> list[bytes]:
        """The lines after the whole answer; none if the engine does not end it, or breaks off."""
        # What is only an account of the answer must not cost it.
        with suppress(TimeoutError, LinkLost, NoAnswer, StreamSilent, LineOverLimit):
            async with asyncio.timeout(_ACCOUNT_TIME):
                # Comments, which keep a connection alive, are skipped.
                while lines := await answer.lines():
                    if any(line.startswith(EVENT_FIELDS) for line in lines):
                        return lines
        return []

    async def _admit(self, connection: Connection, *, doubted: bool) -> None:
        """Check that the engine on a new connection is the proven one."""
        if self._proof is None or self._facts is None:
            return
        try:
            same = await self._is_same(self._questions_on(connection), self._proof, self._facts, doubted=doubted)
        except EngineUnavailable:
            raise
        except EngineRefused as error:
            # It does not even answer like an engine.
            self._note_replaced()
            raise EngineUnavailable(f"the server at {self.url!r} is no longer an engine: {error.message}") from error
        except GatewayError:
            self._note_replaced()
            raise
        if not same:
            self._note_replaced()
            raise EngineUnavailable(f"the engine at {self.url!r} was replaced; the new one is being checked, try again")

    async def _is_same(self, questions: Provable, proof: Proof, known: EngineFacts, *, doubted: bool) -> bool:
        # Another process may report the same facts, unless they include what each draws at random at its start.
        if not doubted and known.start_marker is not None:
            if await questions.start_marker() == known.start_marker:
                return True
            if not self._single_use:
                return False
        facts = (await self._proven(proof, questions)).facts
        if self._single_use:
            # A router ends the process of a model that is not used, and starts another when it is asked for again.
            self._facts = known = replace(known, start_marker=facts.start_marker)
        return facts == known

    async def _proven(self, proof: Proof, questions: Provable) -> Proven:
        proven = await proof(questions)
        # Connections of a single use may lead to several processes, one after the other.
        if self._single_use and await questions.start_marker() != proven.facts.start_marker:
            raise EngineUnavailable(f"the engine at {self.url!r} was replaced while it was being checked; try again")
        return proven

    def _note_replaced(self) -> None:
        self.is_replaced = True
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
        """A context for all requests: reports errors of the transport, and an engine that has gone in the meantime."""
        if self.is_replaced or self._connections.closed:
            # A conversation that waited for a tool while the engine was restarted still holds the previous client.
            raise EngineUnavailable(f"the engine at {self.url!r} was lost or replaced in the meantime; try again")
        with transport_errors(self.url):
            yield


@contextmanager
def transport_errors(url: str) -> Generator[None]:
    """The one place where errors of the transport become errors of the tree."""
    try:
        yield
    except StreamSilent as error:
        raise EngineUnavailable(f"the engine at {url!r} did not answer in time: {error}") from error
    except LinkLost as error:
        raise EngineUnavailable(f"the engine at {url!r} can't be reached: {error}") from error
    except NoAnswer as error:
        raise EngineUnavailable(f"the engine at {url!r} gave no usable answer: {error}") from error
    except LineOverLimit as error:
        raise EngineRefused(f"the engine sent a line of more than {MAX_LINE} bytes", 502) from error


def _timed(end: GenerationEnd, asked: float, begun: float, first: float | None) -> GenerationEnd:
    """The end with times by our clock, if the engine reports none, or longer ones than have passed."""
    told, now = end.timings, monotonic()
    prompt, generate = told.prompt_seconds, told.generate_seconds
    if first is not None and not prompt and not generate:
        prompt, generate = first - begun, now - first
    most = now - asked
    prompt, generate = min(prompt, most), min(generate, most)
    if (prompt, generate) == (told.prompt_seconds, told.generate_seconds):
        return end
    return replace(end, timings=replace(told, prompt_seconds=prompt, generate_seconds=generate))
