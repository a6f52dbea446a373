"""A tiny vocabulary, real enough for the parser: one id a byte, some words, and the special tokens a test wants."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.parser import StreamParser, parser_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Event,
    Reasoning,
)

MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
WORDS = (
    b" <",
    b'>"',
    b'{"name": "',
    b'", "arguments": ',
    b"tool",
    b"_call",
    b">{",
    b"}\n</",
    "Zürich".encode(),
    b"\n<",
    b"><",
)


class TinyVocabulary:
    """Ids 0-255 are bytes, then `WORDS`, then the special tokens."""

    def __init__(self, specials: Iterable[str] = ()) -> None:
        self._words = dict(enumerate(WORDS, 256))
        self.special_tokens: Mapping[str, int] = {text: 1000 + n for n, text in enumerate(specials)}
        self._specials = {token_id: text.encode() for text, token_id in self.special_tokens.items()}

    def token_bytes(self, token_id: int) -> bytes:
        if 0 <= token_id < 256:
            return bytes([token_id])
        return self._specials[token_id] if token_id in self._specials else self._words[token_id]

    def spell(self, text: str, *, specials: bool = False) -> list[int]:
        """Give ids: the longest word at each place, else bytes; special tokens first, and only if asked for."""
        if specials and self.special_tokens:
            longest = sorted(self.special_tokens, key=len, reverse=True)
            parts = re.split(f"({'|'.join(map(re.escape, longest))})", text)
            return [i for p in parts for i in ([self.special_tokens[p]] if p in self.special_tokens else self.spell(p))]
        rest = text.encode()
        longest_first = sorted(self._words.items(), key=lambda word: -len(word[1]))
        ids: list[int] = []
        while rest:
            token_id, word = next(((i, w) for i, w in longest_first if rest.startswith(w)), (rest[0], rest[:1]))
            ids.append(token_id)
            rest = rest[len(word) :]
        return ids


PLAIN = TinyVocabulary()
GUARDED = TinyVocabulary(MARKERS)

WEATHER = ToolSpec(
    "get_weather",
    "Weather of a city.",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
)
TIME = ToolSpec("get_time", "", {"type": "object", "properties": {"tz": {"type": "string"}}})
TOOLS = (WEATHER, TIME)


class Numbered:
    """Call ids that a test can name: call_0, call_1, ..."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return f"call_{self._count - 1}"


def parser(vocabulary: TinyVocabulary = PLAIN, fmt: Format | None = None, *, prompt_tail: str = "") -> StreamParser:
    return parser_for(fmt or format_named("hermes"), vocabulary, TOOLS, prompt_tail=prompt_tail, new_id=Numbered())


def run(ids: Sequence[int], cuts: Sequence[int] | None = None, **options: object) -> list[Event]:
    """Parse ids, one by one or cut at the given places."""
    stream = parser(**options)  # pyright: ignore[reportArgumentType]
    places = range(1, len(ids)) if cuts is None else sorted({cut % (len(ids) + 1) for cut in cuts})
    bounds = [0, *places, len(ids)]
    events = [event for a, b in itertools.pairwise(bounds) for event in stream.feed(ids[a:b])]
    return events + stream.close()


def joined(events: Iterable[Event]) -> list[Event]:
    """Join neighbours that only chunking tells apart: what is left does not depend on the cuts."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        match last, event:
            case Content(a), Content(b):
                out[-1] = Content(a + b)
            case Reasoning(a), Reasoning(b):
                out[-1] = Reasoning(a + b)
            case CallArguments(i, a), CallArguments(j, b) if i == j:
                out[-1] = CallArguments(i, a + b)
            case _:
                out.append(event)
    return out


def texts(events: Iterable[Event], kind: type[Content] | type[Reasoning] = Content) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def closed(events: Iterable[Event]) -> list[CallClosed]:
    return [event for event in events if isinstance(event, CallClosed)]


def started(events: Iterable[Event]) -> list[CallStarted]:
    return [event for event in events if isinstance(event, CallStarted)]


def diagnostics(events: Iterable[Event]) -> list[Diagnostic]:
    return [event for event in events if isinstance(event, Diagnostic)]
