"""What an engine answers, read without trust: JSON objects, event lines, ids, and errors in the engine's own words.

An answer of an unexpected form is reported as the engine's fault (`expecting`). What an engine only reports about its
work is bounded to what is possible, and never costs the work itself. Sans-IO; which fields there are, the adapter of
each engine knows.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from pydantic_core import from_json

from gateway.engine.interface import GenerateRequest, GenerationEnd, GenerationEvent
from gateway.errors import EngineError, EngineRefused, EngineStarting, EngineUnavailable, GrammarRefused
from leaf_sdk.vocab import TokenMap

EVENT_FIELDS: Final = (b"data", b"error")
IDS: Final = 2**32
"""No vocabulary has more ids."""
_SHORTEST: Final = 1e-3
_LONGEST: Final = 1e10
"""Milliseconds that a generation may take: a microsecond to four months. No logarithm of a probability is as large."""
_SAID: Final = 1000
"""Characters of an engine's own words that are passed on."""

_GRAMMAR: Final = re.compile(r"grammar|structur(?:al|ed)[ _](?:tag|output)", re.IGNORECASE)
"""Words in an engine's error that blame the grammar; for vLLM one that waits for a token is a structural tag."""

MISREAD: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What reading an answer of an unexpected form raises."""


@contextmanager
def expecting(url: str, kind: str) -> Generator[None]:
    """A context for reading an answer: an unexpected form is reported as the engine's fault, not ours.

    `kind`: the kind of server that is expected.
    """
    try:
        yield
    except MISREAD as error:
        raise misread(url, kind, error) from error


def misread(url: str, kind: str, error: Exception) -> EngineRefused:
    """The error for an answer of an unexpected form."""
    return EngineRefused(
        f"{url!r} did not answer like {kind} ({error!r:.200}); is a {kind} server listening there?", status=502
    )


def object_of(url: str, kind: str, path: str, status: int, body: bytes) -> dict[str, Any]:
    """The JSON object of an answer. Raises `EngineRefused` and `EngineUnavailable`."""
    if status != 200:
        raise error_of_answer(status, body)
    try:
        answer: object = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise EngineRefused(
            f"{url!r} answered {path!r} with something that is not a JSON object; is a {kind} server listening there?",
            status=status,
        )
    return cast("dict[str, Any]", answer)


def messages_of(lines: Sequence[bytes], done: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """The JSON objects of event lines. Blank lines and comments (the engine's keep-alive) are skipped.

    `done`: what to yield for the line that ends a stream of OpenAI's format; None: nothing. Raises `EngineRefused` for
    what is not an object, and for an error that the engine reports: `GrammarRefused` if the grammar is to blame.
    """
    for line in lines:
        field, _, data = line.partition(b":")
        if field not in EVENT_FIELDS or not (data := data.strip()):
            continue
        if data == b"[DONE]":
            if done is not None:
                yield done
            continue
        try:
            parsed: object = from_json(data)
        except ValueError as error:
            raise EngineRefused(f"the engine sent a stream message that is not JSON: {data[:80]!r}", 502) from error
        if not isinstance(parsed, dict):
            raise EngineRefused(f"the engine sent a stream message that is not a JSON object: {data[:80]!r}", 502)
        # Declared instead of cast: see `EventReader._ids`.
        message: dict[str, Any] = parsed  # pyright: ignore[reportUnknownVariableType]
        if "error" in message or field == b"error":
            raise _told_error(message.get("error", message))
        yield message


def _told_error(error: object) -> EngineRefused:
    words = said(error)
    asked_wrong = isinstance(error, dict) and cast("dict[str, object]", error).get("code") == 400
    if asked_wrong and _GRAMMAR.search(words):
        return GrammarRefused(f"the engine refused the grammar: {words}", 400)
    return EngineRefused(f"the engine stopped with an error: {words}", 502)


def error_of_answer(status: int, body: bytes) -> EngineRefused | EngineUnavailable:
    """The error that an HTTP status other than 200 stands for; 503: the model is still loading."""
    try:
        error: Any = json.loads(body).get("error", {})
    except (ValueError, AttributeError, RecursionError):
        # The page of a proxy, or of another service: nothing in it is for the reader of an error.
        error = "a web page" if body.lstrip()[:1] == b"<" else body[:200].decode("utf-8", "replace")
    words = said(error)
    if status == 503:
        kind = EngineStarting if "oading" in words else EngineUnavailable
        return kind(f"the engine is not ready: {words}")
    if status in (401, 403):
        refused = f"the engine refused the API key, or asks for one ({status}: {words}): set engine.api_key"
        return EngineRefused(refused, status)
    kind = GrammarRefused if status == 400 and _GRAMMAR.search(words) else EngineRefused
    return kind(f"the engine answered {status}: {words}", status)


def said(error: object) -> str:
    """The text of an error object."""
    words = cast("dict[str, object]", error).get("message") if isinstance(error, dict) else None
    return str(words or cast("object", error))[:_SAID]


def count_of(value: object, least: int, most: int) -> int:
    """A number that an engine reports, checked, since memory is allocated by it. Raises `ValueError`."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.40} is not an integer from {least} to {most}")
    return value


def bounded(value: object, most: int) -> int:
    """A count that an engine reports of its work, from 0 to `most`; 0 for anything that is not a count."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    return min(max(whole, 0), most) if type(whole) is int else 0


def seconds_of(milliseconds: object) -> float:
    """A time in seconds; 0, which counts as not reported, for what no clock shows."""
    told = milliseconds if type(milliseconds) in (int, float) else 0
    return cast("float", told) / 1000 if _SHORTEST <= cast("float", told) <= _LONGEST else 0.0


def logprob_of(value: object) -> float | None:
    """A log-probability; None if it is not reported, or is not one. That of a probability of 0 is null in JSON."""
    if type(value) not in (int, float) or not -_LONGEST <= cast("float", value) <= _LONGEST:
        return None
    return min(float(cast("float", value)), 0.0)


def table_of(value: object) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    """A JSON list; empty for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


_NAME: Final = 100
_NAMES: Final = 20
"""Most characters of a name, and most names, in an error."""


def unserved(wanted: str, names: Sequence[str]) -> EngineUnavailable:
    """The error for a model that the server lacks."""
    return EngineUnavailable(
        f"engine.served_model is {wanted!r}, but the server has {listed(names)}: name one of these"
    )


def listed(names: Sequence[str]) -> str:
    """The names of a server's models, for an error: not all of many, and of each not more than one can read."""
    return ", ".join(repr(name[:_NAME]) for name in names[:_NAMES]) or "none"


def text_of(value: object) -> str | None:
    """A text that an engine reports, or None. Raises `TypeError` for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a string")
    return value


def model_name(name: str) -> str:
    """The last part of a path, without the suffix: a whole path would reveal too much, and tell a client nothing."""
    return name.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")


# Requests to an engine other than generations, regardless of the connection: the part that all engines share.
#
# Turns questions into requests and JSON answers into objects. A client asks over any checked connection; a proof asks
# over a single one, so that all answers come from the same server.

Ask = Callable[[str, str, bytes], Awaitable[tuple[int, bytes]]]
"""Sends a request of this method, path and body; returns the answer's status and body. Raises the gateway's errors."""


class JsonQuestions:
    """Questions to one server that speaks JSON."""

    def __init__(self, url: str, kind: str, ask: Ask) -> None:
        """`kind`: the kind of server, for errors."""
        self._url = url
        self._kind = kind
        self._ask = ask

    async def start_marker(self) -> str | None:
        """See `Provable.start_marker`. Most servers draw nothing."""
        return None

    async def embed(
        self, inputs: Sequence[Sequence[int]], encoding_format: str | None, dimensions: int | None
    ) -> dict[str, Any]:
        """`POST /v1/embeddings` with ids; a server that was not started for embeddings refuses."""
        body: dict[str, Any] = {"input": [list(ids) for ids in inputs]}
        said = {"encoding_format": encoding_format, "dimensions": dimensions}
        answer = await self._post("/v1/embeddings", {**body, **{key: value for key, value in said.items() if value}})
        sent = sum(map(len, inputs))
        return {**answer, "usage": {"prompt_tokens": sent, "total_tokens": sent}}

    async def _get(self, path: str) -> dict[str, Any]:
        return object_of(self._url, self._kind, path, *await self._ask("GET", path, b""))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent = json.dumps(body).encode()
        return object_of(self._url, self._kind, path, *await self._ask("POST", path, sent))


# What readers of streams share, for every kind of engine: which ids are accepted, and when an answer is whole.
#
# What an engine sends is not trusted: an id that the map does not have is refused, and a fault after the whole answer
# costs none of it. Sans-IO: lines in, events out. How a kind of engine writes its lines, its adapter knows.

_SLACK: Final = 16
"""Messages that may arrive beyond the requested ids, so that a stream of messages without ids ends too."""


class EventReader(ABC):
    """Reads the lines of one stream of ids; each kind of engine has its own."""

    def __init__(
        self, url: str, token_map: TokenMap | None, request: GenerateRequest, vocabulary: int | None = None
    ) -> None:
        """Read nothing yet.

        Args:
            url: the engine's, for errors.
            token_map: the map whose ids are accepted; None: any id, as long as no map is proven.
            request: what was asked for.
            vocabulary: how many ids the engine says its model has, or how many it may have at most, which may be more
                than the map's: a vocabulary that is padded. Such an id is accepted and has no text.
        """
        self._url = url
        self._padding = range(vocabulary or 0)
        self.padded = 0
        """Ids so far that the engine has and the map has not."""
        self._known = token_map.table if token_map is not None else range(IDS)
        self._prompt = len(request.prompt)
        self._max_tokens = request.max_tokens
        self._gather = request.gather
        self._logprobs = request.logprobs
        self._most_tops = request.top_logprobs if request.logprobs else 0
        self._last: int | None = None
        """The last id."""
        self._given: int = 0
        self._messages = 0
        self._max_messages = request.max_tokens + _SLACK

    @property
    def is_full(self) -> bool:
        """Whether the whole answer has arrived, so that only the engine's account of it is missing."""
        return self._given >= self._max_tokens

    def cut(self) -> GenerationEnd:
        """The end to report for a stream that is abandoned at this point. Raises like `feed`."""
        return GenerationEnd.unreported(self._given)

    def feed(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        """Yield the events of these lines, those before a fault first.

        Raises:
            EngineRefused: the engine reports an error, or its answer has an unexpected form.
            EngineUnavailable: it has aborted the request.
        """
        try:
            yield from self._read(lines)
        except EngineError:
            if not self.is_full:
                raise
            # The answer is whole: the fault concerns only the engine's account of it.
            yield self.cut()

    @abstractmethod
    def _read(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        """See `feed`."""

    def _ids(self, told: object) -> list[int]:
        """The ids of a message. Raises `EngineRefused` for anything that is not an id of the map."""
        if told is None:
            return []
        if not isinstance(told, list):
            raise EngineRefused(f"the engine at {self._url!r} sent {told!r:.40} where token ids were expected", 502)
        # Declared instead of cast, for each token: a cast is a call.
        ids: list[int] = told  # pyright: ignore[reportUnknownVariableType]
        for token_id in ids:
            if type(token_id) is int and token_id in self._known:
                continue
            self.padded += 1
            if type(token_id) is not int or token_id not in self._padding:
                words = f"sent {token_id!r:.40}, which is not an id of the token map"
                raise EngineRefused(f"the engine at {self._url!r} {words}", 502)
        return ids

    def _tops(self, places: Iterable[Iterable[tuple[object, object]]]) -> list[tuple[tuple[int, float], ...]]:
        """The most probable ids at each place with their log-probabilities, without those that can't be."""
        return [self._likeliest(place) for place in places]

    def _likeliest(self, told: Iterable[tuple[object, object]]) -> tuple[tuple[int, float], ...]:
        found: list[tuple[int, float]] = []
        for token_id, value in told:
            if type(token_id) is int and token_id in self._known and (logprob := logprob_of(value)) is not None:
                found.append((token_id, logprob))
        # A server may add the sampled id, even if less probable.
        return tuple(sorted(found, key=lambda top: -top[1])[: self._most_tops])
