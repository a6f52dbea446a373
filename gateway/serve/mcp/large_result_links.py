"""Large results of tools for an MCP client that said how much it takes: a beginning, and a link to the whole.

A model whose client shows it whole results fills its context with one log. The client names a limit, in a header or in
the request's `_meta`; the operator can set one for clients that name none. What is longer is kept, and the client gets
its beginning, what it is in a line, and the URI of a resource, which gives the whole, some lines, or the lines with
some words. Only the principal that got a URI can read it.
"""

import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from anyio.to_thread import run_sync

from gateway.context.large_result_store import ResultStore, shape_of
from gateway.errors import RpcError, rpc_error
from gateway.escape import escape_text
from gateway.protocol.eras import RESULT_LIMIT_KEY, meta_of
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.result_tokens import content_of, is_legacy, is_text, resource_text
from gateway.serve.mcp.sessions import ClientCall, McpSession
from leaf_sdk.leaf.contract import CODEC_META_KEY

if TYPE_CHECKING:
    from gateway.context.memory.remembered import IdsElsewhere

RESULT_LIMIT_HEADER: Final = "x-codec-result-limit"
SCHEME: Final = "codec-result:"
_LINKS_SINCE: Final = "2025-06-18"
"""The protocol version that has `resource_link` blocks; older clients find the URI in the text."""
_LEAST: Final = 1000
"""Characters: a smaller limit counts as this one."""
_BESIDE: Final = 1024
"""Bytes that a kept result takes beside its text."""
_PARTS: Final = "?lines=120-180, ?characters=20001-40000 or ?text=words"
_MOST_HITS: Final = 100
"""Places that a search shows."""
_AROUND: Final = 200
"""Characters that a search shows before and behind a place in a long line."""
_SHOWN: Final = 80
_NUMBER: Final = re.compile(r" *[0-9]{1,15} *")
_MOST_QUERY: Final = 1000
_MOST_WORDS: Final = 200
"""Characters of what is searched for."""
_STEP: Final = 65_536
"""Characters that are looked at in one step: even in a thread, a step lets nothing else run."""
_PART: Final = re.compile(r" *([0-9]{1,20}) *(?:(-) *([0-9]{0,20}))? *")
_MOST_NAMES: Final = 4096
"""Names of results from which on those are forgotten that are no longer kept."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class KeptText:
    """The whole text of a result."""

    owner: str
    tool: str
    content: "array[int] | IdsElsewhere | None" = field(default=None, repr=False)
    """Its UTF-8 bytes; None: they are no longer kept."""

    @property
    def bytes_beside(self) -> int:
        """Bytes that it takes beside its text."""
        return _BESIDE


class ResultLinks:
    """The large results that MCP clients can read on in."""

    def __init__(self, store: ResultStore | None, new_name: Callable[[str], str], limit: int) -> None:
        """Start with none.

        Args:
            store: keeps the texts; None: results stay whole.
            new_name: returns an unguessable name for something of this principal.
            limit: characters of a result's texts for clients that name no limit; 0: all of them.
        """
        self._store = store
        self._new_name = new_name
        self.limit = 0 if store is None else limit and max(limit, _LEAST)
        """Characters of a result that a client takes that names no limit; 0: all."""
        self._kept = dict[str, KeptText]()
        self._most_names = _MOST_NAMES

    def limit_for(self, named: int | None) -> int:
        """Return how many characters of a result a client takes that named this limit, or none; 0: all."""
        if named is None or self._store is None:
            return self.limit
        return named and max(named, _LEAST)

    def named_limit(
        self, params: Mapping[str, Any], headers: Mapping[str, str] | None, session: McpSession | None = None
    ) -> int | None:
        """Return the limit that a request's params or headers name, or else its session; None: they name none. Raises
        `RpcError`: it is no number of characters."""
        given: object = params["_meta"].get(RESULT_LIMIT_KEY) if isinstance(params.get("_meta"), dict) else None
        if given is None and (headers is None or (given := headers.get(RESULT_LIMIT_HEADER)) is None):
            return None if session is None else session.result_limit
        if isinstance(given, str) and _NUMBER.fullmatch(given):
            given = int(given)
        if isinstance(given, float) and given.is_integer():
            # JSON has one kind of number.
            given = int(given)
        if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
            return given
        raise rpc_error(
            INVALID_PARAMS,
            f"{escape_text(str(given), _SHOWN)!r} is no limit of results: expected a number of characters, or 0 for "
            f"all, in the header X-Codec-Result-Limit or in _meta[{RESULT_LIMIT_KEY!r}]",
        )

    async def shorten(self, tool: str, result: dict[str, Any], named: int | None, call: ClientCall) -> dict[str, Any]:
        """Return a result with no more text than the client takes, and a link to the whole if it has more.

        `named`: the limit that the client named. One that named none may refuse blocks that it does not know.
        """
        limit = self.limit_for(named)
        texts = [text for block in content_of(result) if (text := _text_in(block)) is not None]
        if self._store is None or sum(map(len, texts)) <= limit:
            return result
        whole = "\n".join(texts)
        data = array("B", whole.encode("utf-8", "replace"))
        if not self._store.has_room(len(data) + _BESIDE):
            return result
        shape = await run_sync(shape_of, whole)
        name = self._new_name(call.principal.name)
        self._forget()
        kept = self._kept[name] = KeptText(call.principal.name, tool)
        await self._store.keep(kept, data)
        knows_links = call.modern or (call.session is not None and call.session.version >= _LINKS_SINCE)
        has_links = named is not None and knows_links
        return _shortened(result, limit, _link(name, tool, len(data)), f"{len(whole):,} characters, {shape}", has_links)

    def owns(self, uri: object) -> bool:
        """Whether a URI is one of those that are made here."""
        return isinstance(uri, str) and _name_in(uri) in self._kept

    async def read(self, uri: str, call: ClientCall) -> dict[str, Any]:
        """Return the result of `resources/read` for a URI of a kept result. Raises `RpcError`: it is no longer kept,
        belongs to somebody else, or the URI asks for a part that it does not have."""
        kept = self._kept.get(_name_in(uri))
        content = None
        if self._store is not None and kept is not None and kept.owner == call.principal.name:
            content = await self._store.ids_of(kept)
        if content is None:
            raise no_result(uri)
        selected = await run_sync(partial(_selected, bytes(content), uri.partition("?")[2]))
        result: dict[str, Any] = {"contents": [{"uri": uri, "mimeType": "text/plain", "text": selected}]}
        return result | {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if call.modern else result

    def _forget(self) -> None:
        """Drop the names of what is no longer kept."""
        if len(self._kept) >= self._most_names:
            self._kept = {name: kept for name, kept in self._kept.items() if kept.content is not None}
            self._most_names = max(_MOST_NAMES, 2 * len(self._kept))


def result_name(uri: object) -> str | None:
    """Return the name in the URI of a kept result, here or at another replica; None: it is another URI."""
    return _name_in(uri) if isinstance(uri, str) and uri.startswith(SCHEME) else None


def no_result(uri: str) -> RpcError:
    """The error for a URI of a result that is no longer kept, or is not this client's."""
    return rpc_error(
        INVALID_PARAMS, f"no result is kept under {escape_text(uri, _SHOWN)!r}: call its tool again", uri=uri
    )


def _name_in(uri: str) -> str:
    return uri.removeprefix(SCHEME).partition("?")[0] if uri.startswith(SCHEME) else ""


def _link(name: str, tool: str, size: int) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": SCHEME + name,
        "name": f"result of {escape_text(tool, _SHOWN)}",
        "mimeType": "text/plain",
        "size": size,
    }


def _shortened(result: dict[str, Any], limit: int, link: dict[str, Any], whole: str, has_links: bool) -> dict[str, Any]:
    content: list[Any] = []
    left = limit
    for block in content_of(result):
        text = _text_in(block)
        # Ids in a block of their own go with their text.
        if text is None and (left >= 0 or not is_legacy(block)):
            content.append(block)
        elif text is not None and left > 0:
            content.append(block if len(text) <= left else _beginning(block, text, left))
        left -= len(text or "")
    uri = link["uri"]
    content.append(
        {
            "type": "text",
            "text": f"[This is the beginning of {whole}. The whole is the resource {uri} (behind it, {_PARTS} give a "
            "part of it: lines or characters from 1 on, or the lines with some words)]",
        }
    )
    return {**result, "content": [*content, link] if has_links else content}


def _text_in(block: Any) -> str | None:
    """The text of a block, or of the resource in it."""
    return block["text"] if is_text(block) else resource_text(block)


def _beginning(block: dict[str, Any], text: str, most: int) -> dict[str, Any]:
    """The block with the beginning of its text, up to the end of a line if one is near; without ids of the whole."""
    shown = {"text": text[: text.rfind("\n", most // 2, most) + 1 or most]}
    if not is_text(block):
        return {**block, "resource": {**block["resource"], **shown}}
    made = {**block, **shown}
    if "_meta" in made:
        made["_meta"] = {key: value for key, value in meta_of(made).items() if key != CODEC_META_KEY}
    return made


def _selected(data: bytes, query: str) -> str:
    """The part of a text that the query of a URI names."""
    text = data.decode()
    if not query:
        return text
    # Some write a blank as a plus, and others mean a plus: it is kept, and looked at below.
    asked = parse_qs(query[:_MOST_QUERY].replace("+", "%2B"))
    wanted = {name: values[0] for name, values in asked.items()}
    if words := wanted.get("text"):
        return _with_words(text, words[:_MOST_WORDS])
    kind = "lines" if "lines" in wanted else "characters"
    part = _PART.fullmatch(wanted.get(kind, "").replace("+", " "))
    if part is None:
        raise rpc_error(INVALID_PARAMS, f"expected {_PARTS} behind the URI of a result")
    first = max(int(part[1]), 1)
    last = first if part[2] is None else int(part[3] or len(text) + 1)
    start, end = (_line(text, first), _line(text, last + 1) - 1) if kind == "lines" else (first - 1, last)
    count = text.count("\n") + 1 if kind == "lines" else len(text)
    return text[start:end] if first <= min(last, count) else f"[there are {count:,} {kind}]"


def _line(text: str, number: int) -> int:
    """Where a line begins; behind the text and a line break if there are not so many."""
    place, left = 0, number - 1
    while (count := text.count("\n", place, place + _STEP)) < left:
        place, left = place + _STEP, left - count
        if place >= len(text):
            return len(text) + 1
    for _ in range(left):
        place = text.index("\n", place) + 1
    return place


def _with_words(text: str, words: str) -> str:
    found: list[str] = []
    for each in dict.fromkeys((words, words.replace("+", " "))):
        found = found or [*islice(_hits(text, each), _MOST_HITS + 1)]
    more = f"\n[and more: only the first {_MOST_HITS} are shown]" if len(found) > _MOST_HITS else ""
    return "\n".join(found[:_MOST_HITS]) + more or f"[{words[:_SHOWN]!r} is not in the result; try other words]"


def _hits(text: str, words: str) -> Iterator[str]:
    """The lines with these words in either case, each with its number; of a long line, what is around them."""
    number, counted, shown = 1, 0, 0
    for start in _places(text, words):
        end = start + len(words)
        if start >= shown:
            number += text.count("\n", counted, start)
            counted = start
            first = text.rfind("\n", max(start - _AROUND, 0), start) + 1 or max(start - _AROUND, 0)
            after = text.find("\n", end, end + _AROUND)
            shown = after if after >= 0 else end + _AROUND
            yield f"{number}: {text[first:shown]}"


def _places(text: str, words: str) -> Iterator[int]:
    sought, at = _without_case(words), 0
    while at < len(text):
        window = _without_case(text[at : at + _STEP + len(words) - 1])
        place, after = window.find(sought), 0
        while place >= 0:
            yield at + place
            after = place + len(words)
            place = window.find(sought, after)
        at += max(_STEP, after)


def _without_case(text: str) -> str:
    """The text in small letters, with as many characters: Python spells one letter with two, and one by its place."""
    return text.replace("\u0130", "i").replace("\u03a3", "\u03c3").replace("\u03c2", "\u03c3").lower()
