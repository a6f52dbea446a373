"""What a body may hold, however short it is: lists, objects and members."""

import gzip
import json
from math import isinf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from gateway.errors import RequestInvalid
from gateway.protocol.messages import without_escapes, without_strings
from gateway.serve.generation.request_fields import must_be_finite
from gateway.serve.http.request_parts import VALUES, BodyOverLimit, read_body

pytestmark = pytest.mark.anyio
BOUND = 4 * 2**20


async def read(body: bytes, *, binary: bool = False) -> bytes:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return await read_body(Request({"type": "http", "headers": []}, receive), BOUND, binary=binary)


async def read_parts(parts: list[bytes], coding: str = "identity") -> tuple[bytes, int]:
    """The body, bound to 1,000 bytes, and how many of its parts were left unread."""
    left = list(parts)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    headers = [(b"content-encoding", coding.encode())]
    try:
        return await read_body(Request({"type": "http", "headers": headers}, receive), 1000), len(left)
    except BodyOverLimit as error:
        return str(error).encode(), len(left)


OVER = b"the body is longer than 1000 bytes (limits.body_bytes)"
NAMED = b"\x1f\x8b\x08\x08" + bytes(6)
"""The beginning of a gzip whose head names a file; the name may be of any length."""


async def test_body_is_read_up_to_the_bound_and_no_further() -> None:
    assert await read_parts([b"x" * 400, b"x" * 600]) == (b"x" * 1000, 0)
    assert await read_parts([b"x" * 400, b"x" * 601, b"x"]) == (OVER, 1)


async def test_bound_holds_for_what_a_body_decompresses_to() -> None:
    assert await read_parts([gzip.compress(bytes(1000))], "gzip") == (bytes(1000), 0)
    assert await read_parts([gzip.compress(bytes(1001)), b""], "gzip") == (OVER, 1)


async def test_bound_holds_for_what_is_sent_even_if_it_decompresses_to_nothing() -> None:
    assert await read_parts([NAMED, *[b"a" * 100] * 20], "gzip") == (OVER, 10)


def lists(count: int) -> bytes:
    return b"[" + b",".join([b"[]"] * (count - 1)) + b"]"


@pytest.mark.parametrize(
    "over", [lists(VALUES + 1), b'{"x":[%s]}' % b",".join([b"{}"] * VALUES), b"{%s}" % b",".join([b'"":1'] * VALUES)]
)
async def test_json_of_too_many_values_is_refused_before_it_is_parsed(over: bytes) -> None:
    with pytest.raises(RequestInvalid, match=f"more than {VALUES} lists, objects and members"):
        await read(over)
    assert await read(over, binary=True) == over


async def test_json_of_too_many_numbers_is_refused_before_it_is_parsed() -> None:
    body = b"[%s1]" % (b"1," * 500_001)
    with pytest.raises(RequestInvalid, match="500000 items"):
        await read(body)
    assert await read(b"[" + body[5:]) == b"[" + body[5:]


@pytest.mark.parametrize("text", ["[" * 300_000, '{"a": [1]}' * 40_000, '\\"[' * 200_000])
async def test_brackets_in_texts_are_no_values(text: str) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()

    assert await read(body) == body
    assert await read(lists(VALUES)) == lists(VALUES)


JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(JSON, st.booleans())
def test_texts_are_cut_out_whole(value: object, ascii_only: bool) -> None:
    bare = without_strings(without_escapes(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")))

    assert b'"' not in bare
    assert b"\\" not in bare


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999", b"9" * 400, b"-1.5E+400"])
def test_number_that_json_lacks_is_refused_wherever_it_stands(number: bytes) -> None:
    for body in (number, b'{"a": [%s]}' % number, b"[%s%s]" % (b"1," * 300_000, number)):
        with pytest.raises(RequestInvalid, match="1e999 is read as Infinity"):
            must_be_finite(body)


@pytest.mark.parametrize("number", [b"1e308", b"0e999", b"1e-999", b"9" * 308, b"0." + b"0" * 400])
def test_large_number_that_json_has_passes(number: bytes) -> None:
    must_be_finite(b'{"a": [%s, "NaN", "1e999"]}' % number)


NUMBER = r"(?a)-?(?:0|[1-9]\d{0,4}|9{300,320})(?:\.\d{1,3})?(?:[eE][+-]?\d{1,4})?"


@given(st.lists(st.from_regex(NUMBER, fullmatch=True)))
def test_numbers_are_refused_if_one_of_them_is_infinite(numbers: list[str]) -> None:
    body = f'{{"a": [{", ".join(numbers)}], "b": "1e999"}}'.encode()

    if any(isinf(float(number)) for number in numbers):
        with pytest.raises(RequestInvalid, match=r"^a\.\d+: NaN and Infinity"):
            must_be_finite(body)
    else:
        must_be_finite(body)


def test_body_of_numbers_that_are_nearly_too_large_is_read_once() -> None:
    """Reading the rest of a number again for each of its digits held the event loop for half a minute here."""
    must_be_finite(b"[%s]" % b",".join([b"1" * 299] * (BOUND // 300)))


def test_long_fraction_is_no_large_number() -> None:
    must_be_finite(b'[1.%s, "e000"]' % (b"9" * 310))
