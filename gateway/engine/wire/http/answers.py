"""What an engine answers, read without trust: JSON objects of bodies and event lines, errors in the engine's own words.

An answer of an unexpected form is reported as the engine's fault (`expecting`). What an engine only reports about its
work is bounded to what is possible, and never costs the work itself. Sans-IO; which fields there are, the package of
each engine knows.
"""

import json
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from pydantic_core import from_json

from gateway.errors import EngineRefused, EngineStarting, EngineUnavailable, GrammarRefused

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
        message = cast("dict[str, Any]", parsed)
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


def text_of(value: object) -> str | None:
    """A text that an engine reports, or None. Raises `TypeError` for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a string")
    return value


def model_name(name: str) -> str:
    """The last part of a path, without the suffix: a whole path would reveal too much, and tell a client nothing."""
    return name.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf")
