"""Bytes that end inside a character of UTF-8."""

import pytest

from leaf_sdk.vocab.utf8 import cuts_a_character


@pytest.mark.parametrize(
    ("data", "cut"),
    [(b"", False), (b"a", False), ("é".encode()[:1], True), ("東".encode()[:2], True), ("東".encode(), False)],
)
def test_a_cut_character_is_recognised_by_its_lead_byte(data: bytes, cut: bool) -> None:
    assert cuts_a_character(data) is cut
