"""What an engine answers, read with doubt: JSON objects of bodies and of event lines, errors in the engine's own words.

An answer of another shape is the engine's fault and named so (`expecting`). Sans-IO; which fields there are is known to
the package of each engine.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from pydantic_core import from_json

from gateway.engine.interface import GenerationEnd, GenerationEvent
from gateway.errors import EngineRefused, EngineUnavailable, GrammarRefused

EVENT_FIELDS: Final = (b"data", b"error")
IDS: Final = 2**32
"""No vocabulary has more ids."""
_SAID: Final = 1000
"""Characters of an engine's own words that are passed on."""

_GRAMMAR: Final = re.compile(r"grammar|structur(?:al|ed)[ _](?:tag|output)", re.IGNORECASE)
"""Words of an engine by which a grammar is to blame; vLLM has one that waits for a token as a structural tag."""

MISREAD: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What reading an answer of another shape raises."""


class EventReader(ABC):
    """Reads the lines of one stream of ids, as one kind of engine writes them."""

    def __init__(self, most: int) -> None:
        """`most`: ids that were asked for."""
        self._most = most
        self._given: int = 0

    @property
    def is_full(self) -> bool:
        """Whether all ids that were asked for are here: what is left to come is the engine's account of them."""
        return self._given >= self._most

    def cut(self) -> GenerationEnd:
        """The end of a stream that is left here."""
        return GenerationEnd.untold(self._given)

    @abstractmethod
    def feed(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        """Give the events of these lines. What came before a fault is given first. Raises `EngineRefused`."""


@contextmanager
def expecting(url: str, kind: str) -> Generator[None]:
    """Around code that reads an answer: one of another shape is the engine's fault, not ours.

    `kind`: what kind of server it is taken for.
    """
    try:
        yield
    except MISREAD as error:
        raise misread(url, kind, error) from error


def misread(url: str, kind: str, error: Exception) -> EngineRefused:
    """The error for an answer of another shape."""
    return EngineRefused(
        f"{url!r} did not answer as {kind} does ({error!r:.200}); is a {kind} server listening there?", status=502
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

    `done`: what is given for the line that ends a stream of OpenAI's form, if anything. Raises `EngineRefused` for what
    is no object, and for an error that the engine tells of: `GrammarRefused` where a grammar is to blame.
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
        message = cast("dict[str, Any]", parsed)
        if "error" in message or field == b"error":
            raise _told_error(message.get("error", message))
        yield message


def _told_error(error: object) -> EngineRefused:
    words = said(error)
    asked_wrong = isinstance(error, dict) and cast("dict[str, object]", error).get("code") == 400
    if asked_wrong and _GRAMMAR.search(words):
        return GrammarRefused(f"the engine refuses the grammar: {words}", 400)
    return EngineRefused(f"the engine stopped with an error: {words}", 502)


def error_of_answer(status: int, body: bytes) -> EngineRefused | EngineUnavailable:
    """The error that an HTTP status other than 200 stands for; 503: the model is still loading."""
    try:
        error: Any = json.loads(body).get("error", {})
    except (ValueError, AttributeError, RecursionError):
        error = body[:200].decode("utf-8", "replace")
    if status == 503:
        return EngineUnavailable(f"the engine is not ready: {said(error)}")
    words = said(error)
    kind = GrammarRefused if status == 400 and _GRAMMAR.search(words) else EngineRefused
    return kind(f"the engine answered {status}: {words}", status)


def said(error: object) -> str:
    """The words in an error object."""
    words = cast("dict[str, object]", error).get("message") if isinstance(error, dict) else None
    return str(words or cast("object", error))[:_SAID]


def count_of(value: object, least: int, most: int) -> int:
    """A number as an engine says it of itself. What it allocates or compares must be one."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.40} is not a number from {least} to {most}")
    return value


def text_of(value: object) -> str | None:
    """A text as an engine says it of itself, if it does."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value


def model_name(name: str) -> str:
    """A path says too much, and nothing to a client: its last part without the suffix."""
    return name.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")
