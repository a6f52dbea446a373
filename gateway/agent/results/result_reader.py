"""The results of one conversation that were too large for its model: they are kept, and the model reads on in them.

Turns the ids of a large result into its beginning, a line that says what it is and how to read on, and the definitions
of two tools for that; and calls of these tools into the places that they select. A handle means something only in the
conversation that was given it, so nobody can guess another's. What a selection shows is in `shown_ids.py`.
"""

import secrets
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from anyio.to_thread import run_sync

from gateway.agent.results.json_path import select
from gateway.agent.results.shown_ids import ResultBeginning, Selection
from gateway.agent.results.spelled_ids import LONG_LINE, SpelledIds, find
from gateway.config.overrides import RESULT_TOOLS
from gateway.context.compose.conversation import Conversation
from gateway.context.compose.prompt import definition_texts
from gateway.context.memory import KeptResult
from gateway.context.memory.defined_tools import defining
from gateway.context.result_store import ResultStore, shape_of
from gateway.proxy.result_tokens import IdPiece
from gateway.toolcalls.schema.spec import ToolSpec
from leaf_sdk.vocab import TokenMap

if TYPE_CHECKING:
    from gateway.context.memory.remembered import IdSource

READ, SEARCH = RESULT_TOOLS
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
