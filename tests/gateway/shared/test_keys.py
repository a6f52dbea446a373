"""What stands in the store opens for the one thing that it was made for."""

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shared import StoreRecord
from gateway.shared.store_records import RecordSeal, StoreKeys, Unreadable
from tests.cases import each_of

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
    assert repr(StoreKeys([NEW], "p:")) == "StoreKeys(prefix='p:')"


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


SEAL = RecordSeal(KEYS, "memory")
FIRST, SECOND, THIRD = (StoreRecord("1", None, b"one"), StoreRecord("2", "1", b"two"), StoreRecord("3", "2", b"three"))


def stored(*records: StoreRecord) -> list[bytes]:
    """What the store gives for records: the key and the value of each."""
    return [each for record in records for each in (SEAL.sealed("ann", record)[0][0], SEAL.sealed("ann", record)[1])]


def test_record_stands_under_its_own_name_and_names_what_it_follows() -> None:
    keys, _, before = SEAL.sealed("ann", StoreRecord("2", "1", b"two", ("x", "y")))

    assert keys == [SEAL.names("ann", "2")[0], SEAL.aliases("ann", "x")[0], SEAL.aliases("ann", "y")[0]]
    assert before == SEAL.names("ann", "1")[0]
    assert SEAL.sealed("ann", FIRST)[2] == b""
    assert len({*keys, before, *SEAL.names("bob", "2"), *RecordSeal(KEYS, "response").names("ann", "2")}) == 6


def test_owner_has_a_name_without_the_prefix_of_its_kind() -> None:
    assert SEAL.place == b"p:memory:"
    assert SEAL.place + SEAL.owner("ann") in KEYS.names("memory", "owner", "ann")
    assert SEAL.owner("ann") != SEAL.owner("bob")


def test_records_come_oldest_first() -> None:
    assert SEAL.opened("ann", stored(THIRD, SECOND, FIRST), 9) == [FIRST, SECOND, THIRD]
    assert SEAL.opened("ann", [], 9) == []


def test_records_end_where_their_depth_does() -> None:
    assert SEAL.opened("ann", stored(THIRD, SECOND), 2) == [SECOND, THIRD]
    with pytest.raises(Unreadable):
        SEAL.opened("ann", stored(THIRD, SECOND), 3)


@each_of(
    "found",
    [
        lambda: None,
        lambda: b"value",
        lambda: stored(FIRST)[:1],
        lambda: [stored(FIRST)[0], 5],
        lambda: ["name", stored(FIRST)[1]],
        lambda: [stored(SECOND)[0], stored(FIRST)[1]],
        lambda: stored(THIRD, FIRST),
        lambda: stored(FIRST, SECOND),
        lambda: stored(FIRST, FIRST),
    ],
)
def test_what_a_store_can_not_have_been_given_is_unreadable(found: Callable[[], object]) -> None:
    with pytest.raises(Unreadable):
        SEAL.opened("ann", found(), 9)
    with pytest.raises(Unreadable):
        SEAL.opened("bob", stored(FIRST), 9)
