"""Records between two replicas: whole, in their order and of this connection, or none."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from gateway.replicas.sealed_records import FULL, HELLO_BYTES, MAGIC, MOST, Hello, RecordFault, Records, ReplicaKeys

KEYS = ReplicaKeys([b"n" * 32])
DATA = st.lists(st.tuples(st.sampled_from([b"R", b"B", b"E"]), st.binary(max_size=300)), max_size=6)


def both(mine: ReplicaKeys = KEYS, theirs: ReplicaKeys = KEYS) -> tuple[Records, Records]:
    asked, answered = Hello.new(mine.current[0]), Hello.new(theirs.current[0])
    return Records(mine, asked, answered, "asks"), Records(theirs, asked, answered, "answers")


@given(DATA, DATA, st.data())
def test_records_come_as_they_were_sent_however_the_bytes_are_cut(one, other, data):
    asks, answers = both()
    for sender, reader, records in ((asks, answers, one), (answers, asks, other)):
        sent = b"".join(sender.seal(kind, each) for kind, each in records)
        found = []
        while sent:
            size = data.draw(st.integers(1, len(sent)))
            found += reader.feed(sent[:size])
            sent = sent[size:]
        assert found == records


@given(st.binary(min_size=1, max_size=50), st.data())
def test_record_that_was_changed_does_not_open(plain, data):
    asks, answers = both()
    sent = bytearray(asks.seal(b"B", plain))
    place = data.draw(st.integers(4, len(sent) - 1))
    sent[place] ^= data.draw(st.integers(1, 255))

    with pytest.raises(RecordFault):
        answers.feed(bytes(sent))


@pytest.mark.parametrize("order", [(1,), (0, 0), (1, 0), (0, 2)])
def test_record_that_is_missing_doubled_or_moved_does_not_open(order):
    asks, answers = both()
    sent = [asks.seal(b"B", bytes([n])) for n in range(3)]

    with pytest.raises(RecordFault):
        answers.feed(b"".join(sent[n] for n in order))


def test_what_was_recorded_can_not_be_played_again():
    asked = Hello.new(KEYS.current[0])
    asks = Records(KEYS, asked, Hello.new(KEYS.current[0]), "asks")
    again = Records(KEYS, asked, Hello.new(KEYS.current[0]), "answers")

    with pytest.raises(RecordFault):
        again.feed(asks.seal(b"R", b"once"))


def test_own_records_sent_back_do_not_open():
    asks, _ = both()

    with pytest.raises(RecordFault):
        asks.feed(asks.seal(b"B", b"x"))


def test_secret_that_is_not_accepted_is_no_greeting():
    with pytest.raises(RecordFault, match="not accepted"):
        both(KEYS, ReplicaKeys([b"o" * 32]))


@pytest.mark.parametrize("size", [0, 16, MOST + 1, 2**32 - 1], ids=["0", "16", "over", "most"])
def test_length_that_no_record_has_is_refused_before_it_is_waited_for(size):
    _, answers = both()

    with pytest.raises(RecordFault, match=f"a record of {size} bytes, expected"):
        answers.feed(size.to_bytes(4, "big"))


def test_largest_record_is_taken():
    asks, answers = both()
    data = bytes(MOST - 17)

    assert answers.feed(asks.seal(b"B", data)) == [(b"B", data)]


def test_bytes_of_a_connection_are_those_that_replicas_of_other_versions_know():
    asked, answered = Hello(KEYS.current[0], b"a" * 32), Hello(KEYS.current[0], b"b" * 32)
    asks, answers = Records(KEYS, asked, answered, "asks"), Records(KEYS, asked, answered, "answers")
    derived = HKDF(SHA256(), 64, asked.random + answered.random, b"codec-gateway records").derive(b"n" * 32)
    ciphers = [ChaCha20Poly1305(derived[:32]), ChaCha20Poly1305(derived[32:])]

    assert asked.bytes == b"codec-gateway replica 1\n" + KEYS.current[0] + b"a" * 32
    assert (len(asked.bytes), len(Hello.new(KEYS.current[0]).bytes), len(FULL)) == (60, 60, 60)
    for cipher, side in zip(ciphers, (asks, answers), strict=True):
        for number in range(3):
            sealed = cipher.encrypt(number.to_bytes(12, "big"), b"Bone", None)
            assert side.seal(b"B", b"one") == len(sealed).to_bytes(4, "big") + sealed


@pytest.mark.parametrize(
    "said", [MAGIC, MAGIC + bytes(35), MAGIC + bytes(37), b"x" + bytes(HELLO_BYTES - 1), FULL], ids=range(5)
)
def test_greeting_is_of_one_length_and_begins_alike(said):
    with pytest.raises(RecordFault, match="not the greeting"):
        Hello.read(said)


@given(st.binary(max_size=100))
def test_greeting_of_somebody_else_is_none(data):
    with pytest.raises(RecordFault):
        Hello.read(data)
