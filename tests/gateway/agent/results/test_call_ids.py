"""The ids of a call and of its result: exactly those that spell it, and exactly as many as there is room for."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.results.id_slices import ArgumentIds, spelled_arguments
from gateway.agent.results.result_shortening import cut, least_tokens, shorten
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.leaf.contract import LEGACY_BLOCK_TYPE
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()
OBJECT = b'{"place": "Paris"}'
NOTE = "\n[cut: only the first {} tokens are shown]"


class Tokens:
    """A map whose ids are the places of these tokens."""

    special_ids = frozenset({99})

    def __init__(self, *tokens: bytes) -> None:
        self._tokens = tokens

    def has_id(self, token_id: int) -> bool:
        return token_id < len(self._tokens)

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id]


def spelled(*tokens: bytes) -> ArgumentIds | None:
    return spelled_arguments(range(len(tokens)), Tokens(*tokens), "say", {"place": "Paris"})  # pyright: ignore[reportArgumentType]


@each_of(
    ("tokens", "ids"),
    [
        ((OBJECT,), (0,)),
        ((b"<call>", b"\n", OBJECT, b"\n", b"</call>"), (2,)),
        ((b"\n", b'{"place"', b': "Paris"}', b"\n"), (1, 2)),
        # Blanks in the token with which the object begins or ends belong to it.
        ((b"say", b' \n{"place"', b': "Paris"}\n', b"\n"), (1, 2)),
        ((b"say", b'-{"place"', b': "Paris"}'), None),
        ((b"say", b'{"place"', b': "Paris"}-'), None),
        ((b"say", b'{"place"', b': "Paris"', b"\n"), None),
        ((b'"place": "Paris"}',), None),
        ((), None),
    ],
)
def test_ids_are_those_from_the_token_of_the_first_brace_to_that_of_the_last(
    tokens: Sequence[bytes], ids: tuple[int, ...] | None
) -> None:
    assert spelled(*tokens) == (None if ids is None else ArgumentIds(ids, None))


@given(st.lists(st.integers(1, len(OBJECT) - 1), unique=True), st.integers(0, 3), st.integers(0, 3))
def test_object_is_found_however_it_is_cut_into_tokens(cuts: list[int], before: int, behind: int) -> None:
    places = [0, *sorted(cuts), len(OBJECT)]
    tokens = [OBJECT[start:end] for start, end in pairwise(places)]
    region = (*[b"\n"] * before, *tokens, *[b"\n"] * behind)

    assert spelled(*region) == ArgumentIds(tuple(range(before, before + len(tokens))), None)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (b'{"name": "say", "arguments": {"place": "Paris"}}', "say"),
        (b'{"name": "say", "parameters": {"place": "Paris"}}', "say"),
        (b'{"name": "say", "arguments": {}, "parameters": {"place": "Paris"}}', None),
        (b'{"arguments": {"place": "Paris"}}', None),
        (b'{"name": "say"}', None),
        (b"[" * 100_000 + b"{}", None),
        (b"{" * 100_000 + b"}", None),
    ],
)
def test_whole_call_is_spelled_if_it_is_this_one(written: bytes, name: str | None) -> None:
    assert spelled(written) == (None if name is None else ArgumentIds((0,), name))


def text(length: int, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": "a" * length, **more}


def resource(length: int) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "file:///a", "text": "a" * length}}


@pytest.mark.parametrize("block", [text, resource])
def test_block_keeps_32_characters_for_each_id(block: Any) -> None:
    whole = {"content": [block(4 * 32)]}

    assert shorten(whole, 4) is whole
    # A resource becomes the text that the model reads of it.
    assert shorten({"content": [block(4 * 32 + 1)]}, 4) == {"content": [text(4 * 32, _meta={})]}


def test_ids_beside_a_block_that_is_cut_go_with_it() -> None:
    beside = {"type": LEGACY_BLOCK_TYPE, "sibling_index": 0}
    picture = {"type": "image", "data": "a" * 100}
    result = {"content": [text(33), beside, picture, text(1)], "isError": True}

    assert shorten(result, 1) == {"content": [text(32, _meta={}), picture, text(1)], "isError": True}
    assert shorten(result, 2) is result


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ([], 1),
        ([text(63)], 1),
        ([text(64)], 2),
        ([text(63), resource(33)], 3),
        ([{"type": "image", "data": "a" * 1000}], 1),
    ],
)
def test_result_has_at_least_a_token_for_32_characters_of_its_texts(content: list[Any], tokens: int) -> None:
    assert least_tokens({"content": content}) == tokens


def piece(length: int, source: Literal["leaf", "shim"] = "shim") -> IdPiece:
    return IdPiece(tuple(TINY.encode("a" * length)), source)


def test_pieces_are_cut_where_the_note_needs_the_room_and_keep_their_sources() -> None:
    note = tuple(TINY.encode(NOTE.format(100)))
    room = 100 - len(note)
    parts = [piece(room - 3, "leaf"), piece(1), piece(90, "leaf"), piece(90)]

    shown, whole = cut(parts, 100, TINY, shortened=False)

    assert shown == (*parts[:2], piece(2, "leaf"), IdPiece(note, "shim"))
    assert whole is False
    shown, _ = cut([piece(room - 1), piece(90)], 100, TINY, shortened=False)
    assert shown == (piece(room - 1), piece(1), IdPiece(note, "shim"))
    # A piece that fills the room is the last one.
    assert cut([piece(room), piece(90)], 100, TINY, shortened=False)[0] == (piece(room), IdPiece(note, "shim"))
    assert cut([piece(3)], 100, TINY, shortened=True) == ((piece(3), IdPiece(note, "shim")), False)


@given(st.lists(st.integers(0, 60), max_size=4), st.integers(0, 130), st.booleans())
def test_what_is_shown_never_takes_more_than_it_may(lengths: list[int], most: int, shortened: bool) -> None:
    parts = tuple(map(piece, lengths))
    shown, whole = cut(parts, most, TINY, shortened=shortened)
    ids = [token for each in shown for token in each.ids]

    assert whole is (not shortened and sum(lengths) <= most)
    if whole:
        assert shown == parts
        return
    note = TINY.encode(NOTE.format(most))
    kept = min(sum(lengths), max(most - len(note), 0))
    assert ids == TINY.encode("a" * kept) + note[:most]
