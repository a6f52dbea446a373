"""What it costs to look for tool calls in a stream of ids: `python -m bench.toolcalls`.

Three questions. What does one token cost, and does that stay the same from 1 KB to 64 KB of arguments, in every format?
How many ids does the raw watcher pass per second? And how soon does a person see content while tools are offered: how
many tokens go by before an event? All of it in this process, without an engine. Method: README.md.
"""

import gc
import random
import re
import statistics
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

from bench.record import summary, write
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import StreamParser, parser_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, CallStarted, Content, Event
from gateway.toolcalls.stream.watcher import ToolWatcher

SIZES = (1, 4, 16, 64)
"""KB of one string argument."""

ROUNDS = 7
_WARM = 3
TOKEN = 4
"""Characters in an ordinary token."""

TOOL = ToolSpec("write_note", "", {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
ADDRESSES = {"functionary_32": "all\n"}
"""What precedes content in a format that says to whom it speaks."""

WORDS = "The quick brown fox jumps over 13 lazy dogs; all of them saw it (twice), none of them minded. "


class PieceVocabulary:
    """Ids for the pieces of given texts: each marker is one special token, the rest is in pieces of four characters.

    It represents a model whose markers are tokens, for which most of the formats were made.
    """

    def __init__(self, markers: Sequence[str]) -> None:
        self.special_tokens: Mapping[str, int] = {marker: number for number, marker in enumerate(markers)}
        self._bytes = {number: marker.encode() for marker, number in self.special_tokens.items()}
        self._ids = {piece: number for number, piece in self._bytes.items()}
        self._markers = re.compile(
            "|".join(f"({re.escape(m)})" for m in sorted(markers, key=len, reverse=True)) or "$."
        )

    def token_bytes(self, token_id: int, /) -> bytes:
        """Return a piece."""
        return self._bytes[token_id]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; a new piece gets the next id."""
        ids: list[int] = []
        at = 0
        for found in self._markers.finditer(text):
            ids += self._pieces(text[at : found.start()])
            ids.append(self.special_tokens[found.group()])
            at = found.end()
        return [*ids, *self._pieces(text[at:])]

    def _pieces(self, text: str) -> Iterator[int]:
        for start in range(0, len(text), TOKEN):
            piece = text[start : start + TOKEN].encode()
            token_id = self._ids.setdefault(piece, len(self._ids))
            self._bytes[token_id] = piece
            yield token_id


@dataclass(frozen=True, slots=True)
class Subject:
    """A format with a vocabulary of its own."""

    format: Format
    vocabulary: PieceVocabulary

    def parser(self) -> StreamParser:
        """Return a new parser."""
        return parser_for(self.format, self.vocabulary, [TOOL])

    def call(self, value: str) -> list[int]:
        """Return the ids of one call whose argument is `value`, as the format's models write it."""
        words = {"TOOL": TOOL.name, "KEY": "text", "VALUE": value}
        return self.vocabulary.encode(re.sub(r"\b(TOOL|KEY|VALUE)\b", lambda m: words[m[0]], self.format.shape))

    def answer(self, text: str) -> list[int]:
        """Return the ids of an answer without a call."""
        return self.vocabulary.encode(ADDRESSES.get(self.format.name, "") + text)


def subjects() -> list[Subject]:
    """Return every registered format."""
    formats = map(format_named, format_names())
    return [Subject(fmt, PieceVocabulary(fmt.markers)) for fmt in formats]


def text_of(size: int) -> str:
    """Return prose of `size` characters."""
    return (WORDS * (size // len(WORDS) + 1))[:size]


def run(parser: StreamParser, ids: Sequence[int]) -> list[Event]:
    """Feed ids one by one, as an engine sends them."""
    events: list[Event] = []
    for token_id in ids:
        events += parser.feed((token_id,))
    return events + parser.close()


def measure_costs() -> dict[str, Any]:
    """Time every format at every size, the variants taking turns, so that a busy moment affects all alike."""
    cases = {(s.format.name, size): (s, s.call(text_of(size * 1024))) for s in subjects() for size in SIZES}
    times: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    scanned: dict[tuple[str, int], float] = {}
    # The ids of all cases are ours, not a parser's: the collector must not walk them during a sample.
    gc.collect()
    gc.freeze()
    for _ in range(ROUNDS):
        for case, (subject, ids) in cases.items():
            if case[1] == SIZES[0]:
                # What a process does once, compiling patterns and warming up, is done before the clock runs.
                for _ in range(_WARM):
                    run(subject.parser(), ids)
            # Enough streams to make every sample equally long: a single short one would measure the caches it finds.
            parsers = [subject.parser() for _ in range(SIZES[-1] // case[1])]
            began = process_time()
            told = [run(parser, ids) for parser in parsers]
            times[case].append((process_time() - began) / len(ids) / len(parsers) * 1e6)
            scanned[case] = parsers[-1].scanned / len(ids)
            _check(case, told[-1])
    return {name: _cost(name, times, scanned) for name in format_names()}


def _check(case: tuple[str, int], events: Sequence[Event]) -> None:
    whole = [event for event in events if isinstance(event, CallClosed)]
    if len(whole) != 1 or len(whole[0].arguments) < case[1] * 1024:
        raise SystemExit(f"{case[0]!r} did not read its own call of {case[1]} KB; nothing was measured")


def _cost(
    name: str, times: Mapping[tuple[str, int], list[float]], scanned: Mapping[tuple[str, int], float]
) -> dict[str, Any]:
    small, large = statistics.median(times[name, SIZES[0]]), statistics.median(times[name, SIZES[-1]])
    return {
        "us_per_token": {f"{size} KB": summary(times[name, size]) for size in SIZES},
        "scanned_characters_per_token": {f"{size} KB": round(scanned[name, size], 3) for size in SIZES},
        "ratio_of_medians_64_to_1": round(large / small, 3),
    }


def measure_watcher() -> dict[str, Any]:
    """Pass ids through the watcher: many at once, with and without regions, and one by one."""
    random.seed(1)
    start, end, count = 151_657, 151_658, 1_000_000
    plain = [random.randrange(150_000) for _ in range(count)]
    calls = list(plain)
    for at in range(0, count - 200, 1000):
        calls[at], calls[at + 100] = start, end
    feeds: dict[str, Any] = {
        "array, no region": array("I", plain),
        "array, a region of 100 in each 1000": array("I", calls),
        "bytes, no region": array("I", plain).tobytes(),
        "list, no region": plain,
    }
    rates: dict[str, list[float]] = {name: [] for name in feeds}
    singles: list[float] = []
    for _ in range(ROUNDS):
        for name, ids in feeds.items():
            rates[name].append(count / _seconds(ToolWatcher(start, end), [ids]) / 1e6)
        singles.append(_seconds(ToolWatcher(start, end), [(i,) for i in plain[:100_000]]) / 100_000 * 1e6)
    throughput = {name: summary(samples) for name, samples in rates.items()}
    return {"million_ids_per_second": throughput, "us_per_single_id": summary(singles)}


def _seconds(watcher: ToolWatcher, feeds: Sequence[Any]) -> float:
    began = process_time()
    for ids in feeds:
        watcher.feed(ids)
    return process_time() - began


def measure_first_events() -> dict[str, Any]:
    """Count, with a tool offered, the tokens until the first event, and the longest run of tokens without one."""
    return {
        subject.format.name: {
            "plain short": _silence(subject, subject.answer("It is 42, as far as I can see.")),
            "plain long": _silence(subject, subject.answer(text_of(16 * 1024))),
            "tool call": _silence(subject, subject.call(text_of(200))),
        }
        for subject in subjects()
    }


def _silence(subject: Subject, ids: Sequence[int]) -> dict[str, int | None]:
    parser = subject.parser()
    told = [parser.feed((token_id,)) for token_id in ids]
    heard = [number for number, events in enumerate(told, 1) if events]
    firsts = {kind: _first(told, kind) for kind in (Content, CallStarted)}
    gaps = [b - a - 1 for a, b in zip([0, *heard], [*heard, len(ids) + 1], strict=True)]
    return {
        "tokens": len(ids),
        "events": sum(map(len, told)) + len(parser.close()),
        "first_content_at_token": firsts[Content],
        "first_call_at_token": firsts[CallStarted],
        "longest_silence_in_tokens": max(gaps),
    }


def _first(told: Sequence[Sequence[Event]], kind: type[Content] | type[CallStarted]) -> int | None:
    return next((n for n, events in enumerate(told, 1) if any(isinstance(event, kind) for event in events)), None)


def main() -> None:
    """Measure, print a table, and write `results/toolcalls.json`."""
    costs, watcher, first = measure_costs(), measure_watcher(), measure_first_events()
    path = write("toolcalls", ("codec-gateway",), {"parsers": costs, "watcher": watcher, "first_events": first})
    print(
        f"{'format':16} {'us/token 1 KB':>13} {'64 KB':>7} {'ratio':>6}  first content, call, longest silence (tokens)"
    )
    for name, cost in costs.items():
        small, large = (cost["us_per_token"][f"{size} KB"]["median"] for size in (SIZES[0], SIZES[-1]))
        short, call = first[name]["plain short"], first[name]["tool call"]
        print(
            f"{name:16} {small:13.2f} {large:7.2f} {cost['ratio_of_medians_64_to_1']:6.2f}  "
            f"{short['first_content_at_token']}, {call['first_call_at_token']}, {call['longest_silence_in_tokens']}"
        )
    for name, rate in watcher["million_ids_per_second"].items():
        print(f"watcher, {name}: {rate['median']:.0f} M ids/s")
    print(f"watcher, one id a feed: {watcher['us_per_single_id']['median']:.2f} us")
    print(f"written: {path.relative_to(path.parents[2])}", file=sys.stderr)


if __name__ == "__main__":
    main()
