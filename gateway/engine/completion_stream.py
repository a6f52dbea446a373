"""The lines of one llama.cpp event stream into the events of one generation.

Puts right what the stream loses (`repair.py`), counts it, and knows the last message when it sees it. Sans-IO: lines
in, events out, all that one read brought at once. Above: `llama_cpp.py`; below: `llama_json.py`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from pydantic_core import from_json

from gateway.engine.llama_json import MISREAD, misread, read_end, repaired, said
from gateway.engine.protocol import Generated, GenerationEnd, GenerationEvent
from gateway.engine.repair import IdRepair
from gateway.errors import EngineRefused
from leaf_sdk.vocab import TokenMap

_FIELDS: Final = (b"data", b"error")


class CompletionStream:
    """Reads one stream. `gather`: ids of one read may be told as one event."""

    def __init__(self, url: str, token_map: TokenMap | None, *, gather: bool) -> None:
        self._url = url
        self._repair = IdRepair(token_map) if token_map is not None else None
        self._gather = gather
        self._counts = [0, 0, 0]
        self._last: int | None = None

    def feed(self, lines: Sequence[bytes]) -> Iterator[GenerationEvent]:
        """Give the events of these lines. What came before a fault is given first.

        Raises:
            EngineRefused: the engine tells of an error, or speaks something else.
        """
        ids: list[int] = []
        guessed = False
        fault: EngineRefused | None = None
        try:
            for message in _messages(lines):
                new, doubtful = self._take(message)
                end = self._end(message) if message.get("stop") else None
                ids += new
                guessed |= doubtful
                if ids and (end is not None or not self._gather):
                    yield Generated(tuple(ids), guessed)
                    ids, guessed = [], False
                if end is not None:
                    yield end
                    return
        except EngineRefused as error:
            fault = error
        except MISREAD as error:
            fault = misread(self._url, error)
        if ids:
            yield Generated(tuple(ids), guessed)
        if fault is not None:
            raise fault

    def _take(self, message: dict[str, Any]) -> tuple[Sequence[int], bool]:
        """The ids of a message, and whether any is a guess."""
        ids: Sequence[int] | None = message.get("tokens")
        # Nearly every message: what `repaired` would find out costs as much as reading the JSON.
        if ids and (self._repair is None or self._repair.follows(len(ids), message["tokens_predicted"])):
            self._last = ids[-1]
            return ids, False
        fixed = repaired(message, self._repair)
        counts = self._counts
        self._counts = [counts[0] + fixed.found, counts[1] + fixed.guessed, counts[2] + fixed.missed]
        if fixed.ids:
            self._last = fixed.ids[-1]
        return fixed.ids, fixed.guessed or fixed.missed > 0

    def _end(self, message: dict[str, Any]) -> GenerationEnd:
        if self._repair is not None:
            self._counts[2] += self._repair.missing(int(message["tokens_predicted"]))
        return read_end(message, self._last, self._counts)


def _messages(lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of event lines. Blank lines and comments (the engine's keep-alive) are skipped."""
    for line in lines:
        field, _, data = line.partition(b":")
        if field not in _FIELDS or not (data := data.strip()) or data == b"[DONE]":
            continue
        try:
            parsed: object = from_json(data)
        except ValueError as error:
            raise EngineRefused(f"the engine sent a stream message that is no JSON: {data[:80]!r}", 502) from error
        if not isinstance(parsed, dict):
            raise EngineRefused(f"the engine sent a stream message that is no JSON object: {data[:80]!r}", 502)
        message = cast(dict[str, Any], parsed)
        if "error" in message or field == b"error":
            raise EngineRefused(f"the engine stopped with an error: {said(message.get('error', message))}", 502)
        yield message
