"""What is sealed with the replicas' secret opens with it and for its purpose, as it was, and in no other case."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gateway.errors import OwnerGone
from gateway.replicas import ALONE, Replica
from gateway.replicas.connected import Connected, OwnedNames
from gateway.replicas.forwarder import FORWARDED
from gateway.replicas.sealed_records import ReplicaKeys

OLD, NEW = b"o" * 32, b"n" * 32


@given(st.binary(max_size=200), st.text(max_size=20))
def test_what_was_sealed_comes_back_for_its_purpose_alone(plain: bytes, other: str) -> None:
    keys = ReplicaKeys([NEW])
    token = keys.seal("purpose", plain)

    assert keys.opened("purpose", token) == plain
    assert keys.opened(f"purpose {other}", token) is None
    assert ReplicaKeys([OLD]).opened("purpose", token) is None


@given(st.integers(0, 53), st.sampled_from("ABCabc012-_!é "))
def test_token_that_was_changed_anywhere_is_none(place: int, letter: str) -> None:
    keys = ReplicaKeys([NEW])
    token = keys.seal("purpose", b"something")
    # It is another each time.
    assume(token[place] != letter)

    assert keys.opened("purpose", token[:place] + letter + token[place + 1 :]) is None
    assert keys.opened("purpose", token[:place]) is None


@given(st.integers(0, 54), st.text("!é ~.\n", min_size=1, max_size=4))
@example(7, "!!!!")
def test_token_with_something_more_in_it_is_none(place: int, more: str) -> None:
    keys = ReplicaKeys([NEW])
    token = keys.seal("purpose", b"something")

    assert keys.opened("purpose", token[:place] + more + token[place:]) is None


def test_secrets_are_not_shown_with_their_keys() -> None:
    assert repr(ReplicaKeys([NEW, OLD])) == "ReplicaKeys()"


@given(st.text())
def test_what_nobody_sealed_is_none(token: str) -> None:
    assert ReplicaKeys([NEW]).opened("purpose", token) is None


def test_secret_that_is_only_accepted_opens_and_does_not_seal() -> None:
    between = ReplicaKeys([NEW, OLD])

    assert between.opened("purpose", ReplicaKeys([OLD]).seal("purpose", b"x")) == b"x"
    assert ReplicaKeys([OLD]).opened("purpose", between.seal("purpose", b"x")) is None


def test_name_tells_the_others_where_it_lives_and_nobody_else_anything() -> None:
    here, there = (OwnedNames(ReplicaKeys([NEW]), f"10.0.0.{n}:8602") for n in (1, 2))
    name = here.new("session", "ann")

    assert there.elsewhere("session", name, "ann") == here.me
    assert here.elsewhere("session", name, "ann") is None
    assert there.elsewhere("session", name, "bob") is None
    assert there.elsewhere("response", name, "ann") is None
    assert there.elsewhere("session", "x" * 5000, "ann") is None
    assert len({here.new("session", "ann") for _ in range(3)}) == 3
    # Some clients and balancers bound a header's value.
    assert len(name) < 200
    assert "ann" not in name


@pytest.mark.parametrize("principal", ["a" * 10_000, "\ud800", "", "é"])
def test_name_is_of_one_length_whosever_it_is(principal: str) -> None:
    names = OwnedNames(ReplicaKeys([NEW]), "10.0.0.1:8602")
    assert len(names.new("session", principal)) == len(names.new("session", "ann"))


@pytest.mark.parametrize(("host", "length", "is_read"), [(691, 1024, True), (692, 1026, False), (2000, 2770, False)])
def test_name_that_is_too_long_to_be_read_is_nobody_s_though_it_was_sealed(
    host: int, length: int, is_read: bool
) -> None:
    here, there = (OwnedNames(ReplicaKeys([NEW]), f"{'h' * each}:8602") for each in (host, 1))
    name = here.new("session", "ann")

    assert len(name) == length
    assert (there.elsewhere("session", name, "ann") == here.me) is is_read


async def nobody(*_: object) -> None:
    return


@pytest.mark.anyio
async def test_gateway_without_others_has_all_that_it_is_asked_for() -> None:
    names = {ALONE.name("session", "ann") for _ in range(3)}
    keys = [*ALONE.shared_keys("reasoning"), *ALONE.shared_keys("reasoning")]

    assert len(names) == 3
    assert {ALONE.owner("session", name, "ann", {}) for name in names} == {None}
    assert ALONE.at("10.0.0.2:8602", {}) is None
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]
    async with ALONE.listening(nobody):
        with pytest.raises(OwnerGone):
            await ALONE.forward(Replica("10.0.0.2:8602", b""), {}, nobody, nobody)


def test_keys_for_others_to_share_are_alike_everywhere_and_those_of_the_secret_before_still_open() -> None:
    def shared(*secrets: bytes, purpose: str = "reasoning") -> list[bytes]:
        return [*Connected(ReplicaKeys([*secrets]), "127.0.0.1", 8602).shared_keys(purpose)]

    assert shared(NEW, OLD) == [*shared(NEW), *shared(OLD)]
    assert shared(NEW) != shared(NEW, purpose="other")
    assert NEW not in shared(NEW)


def test_request_that_another_replica_sent_on_is_answered_where_it_arrives() -> None:
    here, there = (Connected(ReplicaKeys([NEW]), f"10.0.0.{n}", 8602) for n in (1, 2))
    name = there.name("session", "ann")
    owner = here.owner("session", name, "ann", {})

    assert owner is not None
    assert owner.address == "10.0.0.2:8602"
    assert here.owner("session", name, "ann", {FORWARDED: True}) is None
    assert here.at("10.0.0.2:8602", {FORWARDED: True}) is None
    assert here.at("10.0.0.1:8602", {}) is None
    assert there.at("10.0.0.1:8602", {}) == Replica("10.0.0.1:8602", b"")


def test_address_of_a_host_in_the_newer_form_is_written_in_brackets() -> None:
    here, there = (Connected(ReplicaKeys([NEW]), host, 8602) for host in ("fd00::1", "10.0.0.2"))
    owner = there.owner("session", here.name("session", "ann"), "ann", {})

    assert owner is not None
    assert owner.address == "[fd00::1]:8602"
