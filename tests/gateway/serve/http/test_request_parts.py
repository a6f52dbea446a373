"""The headers of a request by name, the kinds of bodies that are read, and msgpack within bounds."""

from typing import Any

import msgpack
import pytest
from starlette.requests import Request

from gateway.errors import RequestInvalid
from gateway.serve.http.request_parts import (
    ITEMS,
    VALUES,
    BodyUnread,
    check_values,
    headers_of,
    media_type,
    must_be_json,
    read_body,
    unpack,
)

ACCEPT = (b"accept", b"text/html")


def read(*headers: tuple[bytes, bytes]) -> tuple[dict[str, str], set[str]]:
    found = headers_of({"type": "http", "headers": list(headers)})
    return found.values, found.repeated


def test_headers_have_their_values_without_the_blanks_around_them() -> None:
    assert read((b"host", b"here \t"), (b"x-odd", b" \xe9"), (b"x-empty", b"")) == (
        {"host": "here", "x-odd": "\xe9", "x-empty": ""},
        set(),
    )


def test_first_value_of_a_repeated_header_counts_and_all_of_accept() -> None:
    twice = [(b"host", b"one"), ACCEPT, (b"host", b"two"), (b"accept", b"image/png \t"), (b"x-once", b"1")]

    assert read(*twice) == ({"host": "one", "accept": "text/html, image/png", "x-once": "1"}, {"host", "accept"})
    assert read((b"host", b"one"), ACCEPT, (b"host", b"two")) == ({"host": "one", "accept": "text/html"}, {"host"})


def test_headers_are_read_once_for_each_list_of_a_scope() -> None:
    scope: dict[str, Any] = {"type": "http", "headers": [ACCEPT]}
    first = headers_of(scope)
    again = headers_of(scope)
    other = headers_of({**scope, "headers": [(b"host", b"here")]})

    assert again is first
    assert other.values == {"host": "here"}


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("application/json", "application/json"),
        ("Application/JSON ; charset=utf-8; x=y", "application/json"),
        ("", ""),
    ],
)
def test_media_type_is_the_type_without_its_parameters(written: str, kind: str) -> None:
    assert media_type(written) == kind


def with_headers(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    return Request({"type": "http", "headers": raw}, receive)


def test_body_that_is_not_declared_as_json_is_refused() -> None:
    must_be_json(with_headers(content_type="application/json; charset=utf-8"))
    for headers in ({}, {"content_type": "text/plain"}):
        with pytest.raises(BodyUnread, match="send application/json"):
            must_be_json(with_headers(**headers))


@pytest.mark.anyio
async def test_content_coding_is_read_whatever_its_letters_and_an_unknown_one_is_refused_with_those_there_are() -> None:
    assert await read_body(with_headers(content_encoding=" Identity "), 10) == b""
    with pytest.raises(BodyUnread, match=r"Content-Encoding 'lzma' is not accepted here: send one of .*gzip"):
        await read_body(with_headers(content_encoding="lzma"), 10)


@pytest.mark.anyio
async def test_body_that_is_damaged_is_refused() -> None:
    with pytest.raises(RequestInvalid, match="the body can't be decompressed"):
        await read_body(with_headers(content_encoding="gzip"), 10)


def test_json_holds_up_to_500000_commas() -> None:
    check_values(b"[%s1]" % (b"1," * 500_000))
    with pytest.raises(RequestInvalid):
        check_values(b"[%s1]" % (b"1," * 500_001))


def packed(value: object) -> bytes:
    return bytes(msgpack.packb(value))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


@pytest.mark.parametrize("value", [1, "a", [[], {}], {"a": [1, {"b": None}]}])
def test_msgpack_is_the_value_that_was_packed(value: object) -> None:
    assert unpack(packed(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        # A list of lists, a list of maps, and one of maps of one member each, which count with their members.
        [[]] * (VALUES - 1),
        [{}] * (VALUES - 1),
        [[], *[{"": 0}] * (VALUES // 2 - 1)],
    ],
    ids=["lists", "maps", "members"],
)
def test_msgpack_holds_so_many_lists_maps_and_members_and_not_one_more(value: list[object]) -> None:
    assert len(unpack(packed(value))) == len(value)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=f"more than {VALUES} lists, maps and members"):
        unpack(packed([*value, []]))


def test_map_of_too_many_members_is_refused_before_it_is_built() -> None:
    # The head of a map of that many members, and none of them.
    with pytest.raises(ValueError, match="map"):
        unpack(b"\xdf" + (VALUES + 1).to_bytes(4, "big"))


def test_msgpack_holds_so_many_items_in_all_lists_and_not_one_more() -> None:
    assert unpack(packed([1] * ITEMS)) == [1] * ITEMS
    half = [1] * (ITEMS // 2)
    with pytest.raises(ValueError, match=f"more than {ITEMS} items"):
        unpack(packed([half, half, [1]]))


@pytest.mark.parametrize("body", [b"\xdd" + (ITEMS + 1).to_bytes(4, "big"), b"\xd6\xff\0\0\0\0", b"\xd4\x05\0"])
def test_list_of_too_many_items_and_types_that_no_field_has_are_refused_before_they_are_built(body: bytes) -> None:
    with pytest.raises(ValueError, match="exceeds max"):
        unpack(body)
