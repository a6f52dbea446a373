"""The results of one conversation that were too large for its model: they are kept, and the model reads on in them.

Turns the ids of a large result into its beginning, a line that says what it is and how to read on, and the definitions
of two tools for that; and calls of these tools into the places that they select. A handle means something only in the
conversation that was given it, so nobody can guess another's.
"""

import secrets
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from anyio.to_thread import run_sync

from gateway.agent.results.id_slices import LONG_LINE, SpelledIds, SpelledPart, find, fitting
from gateway.agent.results.json_path import select
from gateway.config.overrides import RESULT_TOOLS
from gateway.context.compose.conversation import Conversation
from gateway.context.compose.prompt import definition_texts
from gateway.context.large_result_store import ResultStore, shape_of
from gateway.context.memory import KeptResult
from gateway.context.memory.defined_tools import defining
from gateway.proxy.result_tokens import IdPiece
from gateway.toolcalls.schema.spec import ToolSpec
from leaf_sdk.vocab import TokenMap

if TYPE_CHECKING:
    from gateway.context.memory.remembered import IdSource

READ, SEARCH = RESULT_TOOLS

# What a model sees of a kept result: its beginning, or the places that a call selected, in at most so many ids.
#
# The result's own ids stand there unchanged; what the gateway says about them is encoded as ordinary text. Each says
# where it ends and how to read on, so that no part is skipped unnoticed. Pure.

_NEXT: Final = "\n"
_DIGITS: Final = 8
"""Ids that numbers may take beyond those of other numbers."""
_LEAST: Final = 4
"""A beginning that would have less than one in so many of its ids is not worth a definition of tools."""


@dataclass(frozen=True, slots=True)
class ResultBeginning:
    """The beginning of a kept result."""

    result: KeptResult
    ids: tuple[int, ...]
    """As many of its first ids as may be shown at most."""
    definitions: tuple[int, ...]
    """The text that defines the tools with which the model reads on; () where it has read it."""

    @property
    def own(self) -> tuple[IdPiece, ...]:
        """As many of its first ids as may be shown at most, by where they came from."""
        return tuple(_sourced(self.result, self.ids, 0))

    def fits(self, most: int, token_map: TokenMap) -> bool:
        """Whether there is room for more than the words around it."""
        return self._room(most, token_map) * _LEAST >= most

    def pieces(self, most: int, token_map: TokenMap) -> tuple[tuple[IdPiece, ...], int]:
        """Return at most `most` ids, and how many of them are the result's."""
        shown = fitting(self.ids, max(self._room(most, token_map), 0), token_map)
        end = (*token_map.encode(self._note(len(shown))), *self.definitions)
        own = _sourced(self.result, shown, 0)
        return (*own, IdPiece(end[:most], "shim")), len(shown)

    def _room(self, most: int, token_map: TokenMap) -> int:
        around = len(token_map.encode(self._note(most))) + _DIGITS + len(self.definitions)
        return min(most, len(self.ids)) - around

    def _note(self, shown: int) -> str:
        result = self.result
        return (
            f"\n[cut: the first {shown} of {result.tokens} tokens are shown; the whole result is kept as "
            f"{result.handle}: {result.shape}. Find words in it with "
            f'{SEARCH}(handle="{result.handle}", text="..."), or read on with '
            f'{READ}(handle="{result.handle}", offset={shown}).]'
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """The places of a kept result that a call selected."""

    result: KeptResult
    ids: "array[int]"
    """All ids of the result."""
    parts: tuple[SpelledPart, ...]
    count: int
    """How many places there are; those that are not in `parts` were only counted."""
    by: Literal["offset", "lines", "path", "search"]
    is_whole: bool = True
    """Whether all places were counted."""
    missing: str = ""
    """What is said if there are none."""

    def fits(self, most: int, token_map: TokenMap) -> bool:
        """Whether there is room for more than the words around them."""
        around = self._longest_note(token_map) if self.parts else len(token_map.encode(self.missing))
        return around <= most

    def pieces(self, most: int, token_map: TokenMap) -> tuple[IdPiece, ...]:
        """Return the ids of as many places as fit, with words around them; at most `most` ids."""
        if not self.parts:
            return (IdPiece(tuple(token_map.encode(self.missing)[:most]), "shim"),)
        room = most - self._longest_note(token_map)
        found: list[IdPiece] = []
        shown, end = 0, self.parts[0].first
        for number, part in enumerate(self.parts):
            label = token_map.encode(self._label(part, number))
            own = fitting(self.ids[part.first : part.last], max(room - len(label), 0), token_map)
            # Only the first place is shown in part, since the others can be asked for.
            if not own or (number and len(own) < part.last - part.first):
                break
            room -= len(label) + len(own)
            found += [IdPiece(tuple(label), "shim")] if label else []
            found += _sourced(self.result, own, part.first)
            shown, end = number + 1, part.first + len(own)
        note = token_map.encode(self._note(shown, end))
        return (*found, IdPiece(tuple(note[:most]), "shim"))

    def _longest_note(self, token_map: TokenMap) -> int:
        ends = self.parts[0].last - 1, self.result.tokens
        notes = (self._note(shown, end) for shown in (0, len(self.parts)) for end in ends)
        return max(len(token_map.encode(note)) for note in notes) + _DIGITS

    def _label(self, part: SpelledPart, number: int) -> str:
        if self.by not in ("path", "search"):
            return ""
        place = f"line {part.line}, offset {part.first}" if self.by == "search" else part.label
        return f"{_NEXT if number else ''}[{place}] "

    def _note(self, shown: int, end: int) -> str:
        """What is said behind the places. `end`: where the last one of those that are shown ends here."""
        result, handle, first = self.result, self.result.handle, self.parts[0]
        if self.by == "search":
            count = f"{self.count} or more" if not self.is_whole else self.count
            more = f'; go on with {SEARCH}(handle="{handle}", ..., offset={end})'
            more = "" if self.is_whole and shown == self.count else more
            return f"\n[{shown} of {count} places in {handle}{more}]"
        if self.by == "path":
            # Only the first one is ever shown in part.
            more = "" if end >= first.last else f'; read on with {READ}(handle="{handle}", offset={end})'
            fewer = "; select fewer, as in [0:9], to see the others" if shown < self.count else ""
            return f"\n[{shown} of {self.count} values in {handle}{more}{fewer}]"
        more = "the end" if end >= result.tokens else f'read on with {READ}(handle="{handle}", offset={end})'
        return f"\n[from line {first.line}: tokens {first.first} to {end} of {result.tokens} in {handle}; {more}]"


def _sourced(result: KeptResult, ids: Sequence[int], first: int) -> Iterator[IdPiece]:
    """Yield consecutive ids of a result by where they came from. `first`: the place of the first one."""
    at, last = first, first + len(ids)
    number = bisect_right(result.sources, first, key=itemgetter(1))
    while at < last:
        source, end = result.sources[number]
        yield IdPiece(tuple(ids[at - first : min(end, last) - first]), source)
        at, number = end, number + 1


# The kept results, and the calls that read them.

_HANDLE: Final = {"type": "string", "description": "As the shortened result names it."}
SPECS: Final = (
    ToolSpec(
        READ,
        "Read on in a result that was too long to show: from a token (offset), by lines, or by JSON path.",
        {
            "type": "object",
            "properties": {
                "handle": _HANDLE,
                "offset": {"type": "integer", "minimum": 0, "description": "Token to begin at."},
                "lines": {"type": "string", "description": "Such as 120-180."},
                "path": {"type": "string", "description": "Such as $.items[0].name, $.items[2:5], $.items[*].id."},
            },
            "required": ["handle"],
        },
    ),
    ToolSpec(
        SEARCH,
        "Find words, or a regular expression, in a result that was too long to show.",
        {
            "type": "object",
            "properties": {
                "handle": _HANDLE,
                "text": {"type": "string", "description": "Words to find, in upper or lower case."},
                "regex": {"type": "string", "description": "Expression to find, in RE2's syntax."},
                "offset": {"type": "integer", "minimum": 0, "description": "Token to begin at."},
            },
            "required": ["handle"],
        },
    ),
)
"""Their texts are short: they stand in the context of every conversation that has a large result."""
_LETTERS: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without those that look like others, since models copy handles."""
_LENGTH: Final = 6
_DIGEST: Final = 16
_MOST_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Kept:
    """A result that was kept, and what the model sees of it."""

    result: KeptResult
    beginning: ResultBeginning
    pieces: tuple[IdPiece, ...]
    shown: int
    """How many of its ids are in the pieces."""

    @property
    def own(self) -> tuple[IdPiece, ...]:
        """As many of the result's own ids as may be shown at most."""
        return self.beginning.own

    def cut(self, most: int, token_map: TokenMap) -> "Kept":
        """Return the same with at most `most` ids."""
        pieces, shown = self.beginning.pieces(most, token_map)
        return Kept(self.result, self.beginning, pieces, shown)


class ResultReader:
    """The kept results of one conversation."""

    def __init__(self, store: ResultStore, conversation: Conversation) -> None:
        self._store = store
        self._conversation = conversation

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools that read results, without those of tools of the request."""
        conversation = self._conversation
        return tuple(each.name for each in conversation.asked.result_tools if not conversation.has(each.name))

    def can_keep(self, tokens: int, beside: int = 0) -> bool:
        """Whether a result with so many tokens, and bytes beside them, can be kept and read."""
        return self.names == RESULT_TOOLS and self._store.has_room(tokens * array("I").itemsize + beside)

    async def keep(self, tool: str, pieces: Sequence[IdPiece], most: int, token_map: TokenMap) -> Kept | None:
        """Keep a result, of which the model may see `most` ids; None where it can't be kept or read."""
        conversation = self._conversation
        tokens = sum(len(piece.ids) for piece in pieces)
        if not self.can_keep(tokens):
            return None
        definitions = ""
        if not conversation.results:
            texts = await definition_texts(conversation.asked.result_tools, conversation.ready)
            definitions = f"\n{defining(texts)}"
        ids = array("I")
        for piece in pieces:
            ids.extend(piece.ids)
        digest = blake2b(ids, digest_size=_DIGEST).digest()
        known = next((each for each in conversation.results if each.digest == digest), None)
        result = known or await self._named(tool, pieces, ids, digest, token_map)
        beginning = ResultBeginning(result, tuple(ids[:most]), tuple(token_map.encode(definitions)))
        if not beginning.fits(most, token_map) or not self.can_keep(tokens, result.bytes_beside):
            return None
        if known is None:
            conversation.results = (*conversation.results, result)
        await self._store.keep(result, ids)
        return Kept(result, beginning, (), 0).cut(most, token_map)

    async def select(self, name: str, arguments: Mapping[str, Any]) -> Selection:
        """Return what a call selects. Raises `ValueError` with what to do instead."""
        ready = self._conversation.ready
        result = self._result(str(arguments["handle"]))
        ids = await self._store.ids_of(result) if result.map_id == ready.token_map.map_id else None
        if ids is None:
            raise ValueError(f"the result {result.handle} is no longer kept: call {result.tool!r} again")
        chosen = _found if name == SEARCH else _read
        return await run_sync(chosen, result, ids, ready.token_map, arguments)

    def _result(self, handle: str) -> KeptResult:
        known = self._conversation.results
        # Models copy what stands around it, too.
        found = next((each for each in known if each.handle == handle.strip(" \"'`[]<>")), None)
        if found is not None:
            return found
        listed = ", ".join(f"{each.handle} (of {each.tool})" for each in known) or "none"
        raise ValueError(
            f"no result {handle[:40]!r} is kept in this conversation; those that are: {listed}. "
            "To see another one, call the tool that returned it again"
        )

    async def _named(
        self, tool: str, pieces: Sequence[IdPiece], ids: "array[int]", digest: bytes, token_map: TokenMap
    ) -> KeptResult:
        taken = {each.handle for each in self._conversation.results}
        handle = next(name for name in iter(_new_handle, None) if name not in taken)
        shape = await run_sync(lambda: shape_of(token_map.decode(ids)))
        owner = self._conversation.asked.principal.name
        return KeptResult(handle, owner, tool, token_map.map_id, len(ids), tuple(_sources(pieces)), digest, shape)


def _sources(pieces: Sequence[IdPiece]) -> "Iterator[tuple[IdSource, int]]":
    """Yield where consecutive ids came from, each with the place where they end."""
    end = 0
    for source, run in groupby((piece for piece in pieces if piece.ids), key=_source_of):
        end += sum(len(piece.ids) for piece in run)
        yield source, end


def _source_of(piece: IdPiece) -> "IdSource":
    return piece.source


def _new_handle() -> str:
    return "r_" + "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def _read(result: KeptResult, ids: "array[int]", token_map: TokenMap, arguments: Mapping[str, Any]) -> Selection:
    spelled = SpelledIds(ids, token_map)
    offset, lines, path = (arguments.get(name) for name in ("offset", "lines", "path"))
    if path:
        return _by_path(result, ids, spelled, str(path))
    if lines:
        places = spelled.lines(*_line_numbers(str(lines)))
        if places is None:
            raise ValueError(f"the result {result.handle} has only {spelled.line_count:,} lines")
        return Selection(result, ids, (spelled.part(*places),), 1, "lines")
    start = int(offset or 0)
    if start >= len(ids):
        raise ValueError(f"the result {result.handle} has only {len(ids)} tokens: give an offset below that")
    return Selection(result, ids, (spelled.part(spelled.byte_of(start), len(spelled.text)),), 1, "offset")


def _line_numbers(written: str) -> tuple[int, int]:
    first, _, last = written.replace(" ", "").partition("-")
    if not first.isdecimal() or (last and not last.isdecimal()) or len(written) > 2 * _MOST_DIGITS:
        raise ValueError(f"expected lines as in 120-180; got {written[:40]!r}")
    start = max(int(first), 1)
    return start, max(int(last or first), start)


def _by_path(result: KeptResult, ids: "array[int]", spelled: SpelledIds, path: str) -> Selection:
    text = spelled.text.decode("utf-8", "replace")
    values = select(text, path)
    byte_of = _byte_places(text)
    parts = tuple(spelled.part(byte_of(each.start), byte_of(each.end), each.path) for each in values)
    missing = f"[path {path[:80]!r} selects nothing in {result.handle}: {result.shape}]"
    return Selection(result, ids, parts, len(parts), "path", missing=missing)


def _byte_places(text: str) -> Callable[[int], int]:
    """Return what tells where a character's bytes begin, asked in their order, as they are selected."""
    seen = [0, 0]

    def place_of(place: int) -> int:
        start, counted = seen
        seen[:] = place, counted + len(text[start:place].encode())
        return seen[1]

    return place_of


def _found(result: KeptResult, ids: "array[int]", token_map: TokenMap, arguments: Mapping[str, Any]) -> Selection:
    words, regex, offset = (arguments.get(name) for name in ("text", "regex", "offset"))
    if bool(words) == bool(regex):
        raise ValueError("expected either text or regex: what to look for")
    start = min(int(offset or 0), len(ids))
    spelled = SpelledIds(ids, token_map)
    found = find(spelled, str(words or regex), is_regex=bool(regex), offset=start)
    behind = f" from token {start} on" if start else ""
    limit = f" within {LONG_LINE:,} bytes of a line (some lines are longer)" if found.is_split else ""
    missing = f"[{str(words or regex)[:80]!r} is not in {result.handle}{behind}{limit}; try other words]"
    return Selection(result, ids, found.parts, found.count, "search", found.is_whole, missing)
