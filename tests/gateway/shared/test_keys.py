"""What stands in the store opens for the one thing that it was made for."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shared.store_records import StoreKeys

OLD, NEW = os.urandom(32), os.urandom(32)
KEYS = StoreKeys([NEW], "p:")


@given(st.text(), st.binary(max_size=200))
def test_value_opens_as_it_was_sealed(owner: str, plain: bytes) -> None:
    (name,) = KEYS.names("thing", owner)

    assert KEYS.opened("thing", owner, name, KEYS.seal("thing", owner, name, plain)) == plain


@pytest.mark.parametrize(
    ("purpose", "owner", "name"), [("other", "ann", b"n"), ("thing", "bob", b"n"), ("thing", "ann", b"m")]
)
def test_value_of_another_purpose_principal_or_key_is_not_there(purpose: str, owner: str, name: bytes) -> None:
    value = KEYS.seal("thing", "ann", b"n", b"words")

    assert KEYS.opened(purpose, owner, name, value) is None


def test_value_that_was_changed_anywhere_or_cut_is_not_there() -> None:
    value = KEYS.seal("thing", "ann", b"n", b"words")
    changed = [value[:n] + bytes([value[n] ^ 1]) + value[n + 1 :] for n in range(len(value))]
    cut = [value[:n] for n in range(len(value))]

    assert {KEYS.opened("thing", "ann", b"n", each) for each in [*changed, *cut, value + b"x"]} == {None}


def test_secrets_are_not_shown_with_their_keys() -> None:
    assert repr(NEW)[2:-1] not in repr(KEYS)


def test_secret_is_exchanged_in_two_steps_and_nothing_is_lost() -> None:
    before, both, after = StoreKeys([OLD], "p:"), StoreKeys([NEW, OLD], "p:"), StoreKeys([NEW], "p:")
    (old_name,) = before.names("thing", "id")
    value = before.seal("thing", "ann", old_name, b"words")

    assert both.names("thing", "id") == [*after.names("thing", "id"), old_name]
    assert both.opened("thing", "ann", old_name, value) == b"words"
    assert after.opened("thing", "ann", old_name, value) is None


def test_name_tells_nothing_and_no_part_moves_into_its_neighbour() -> None:
    (name,) = KEYS.names("thing", "ann", "secret")

    assert name.startswith(b"p:thing:")
    assert b"ann" not in name
    assert name != KEYS.names("thing", "ann", "secret2")[0]
    assert KEYS.names("thing", "ab", "c") != KEYS.names("thing", "a", "bc")
