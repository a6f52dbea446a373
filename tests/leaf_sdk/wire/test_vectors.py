"""The golden vectors of frames and streams. Where we differ from codecai 0.4.1 on purpose, the test says why."""

import pytest

from leaf_sdk.errors import FrameInvalid, FrameTooLarge, FrameTruncated
from leaf_sdk.wire import Frame, FrameReader

from .conftest import golden_frame, read, written


@pytest.fixture(scope="module")
def wire(vectors):
    return vectors("wire")


def test_every_frame_is_written_as_published(wire):
    for case in wire["frames"]["cases"]:
        frame = golden_frame(case["frame"])
        assert written("msgpack", [frame]).hex() == case["msgpack_hex"], case["name"]
        assert written("protobuf", [frame]).hex() == case["protobuf_prefixed_hex"], case["name"]


def test_every_frame_is_read_in_both_spellings_of_done(wire):
    for case in wire["frames"]["cases"]:
        frame = golden_frame(case["frame"])
        assert FrameReader("msgpack").feed(bytes.fromhex(case["msgpack_hex"])) == [frame], case["name"]
        for key in ("protobuf_prefixed_hex", "protobuf_prefixed_legacy_done_false_hex"):
            if key in case:
                assert FrameReader("protobuf").feed(bytes.fromhex(case[key])) == [frame], (case["name"], key)


@pytest.mark.parametrize("form", ["msgpack", "protobuf"])
def test_the_stream_is_read_at_every_chunk_size(wire, form):
    stream = wire["streams"]
    data = bytes.fromhex(stream[f"{form}_hex"])
    expected = [golden_frame(fields) for fields in stream["frames"]]
    assert written(form, expected) == data
    for size in {*stream["verified_chunk_sizes"], 2, 3, 7}:
        reader = FrameReader(form)
        found = [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]
        assert found + reader.close() == expected


@pytest.mark.parametrize("form", ["msgpack", "protobuf"])
def test_bytes_after_done_are_not_looked_at(wire, form):
    stream = wire["streams"]
    data = bytes.fromhex(stream[f"{form}_hex"])
    assert len(read(form, data + b"\xc1 this is not a frame")) == 3
    reader = FrameReader(form)
    assert len(reader.feed(data)) == 3
    assert reader.done
    assert reader.feed(b"\xc1") == []


@pytest.mark.parametrize("form", ["msgpack", "protobuf"])
def test_a_stream_cut_inside_a_frame_is_an_error(wire, form):
    # codecai ends a msgpack stream silently there: lost tokens would look like a short answer.
    data = bytes.fromhex(wire["streams"][f"{form}_hex"])[:-3]
    reader = FrameReader(form)
    assert len(reader.feed(data)) == 2
    with pytest.raises(FrameTruncated, match="inside the frame that starts at byte") as caught:
        reader.close()
    assert caught.value.offset == len(data)


@pytest.mark.parametrize("form", ["msgpack", "protobuf"])
def test_a_stream_without_done_is_an_error(form):
    # codecai accepts it in both formats.
    data = written(form, [Frame((1, 2))])
    with pytest.raises(FrameTruncated, match="before a frame that says done") as caught:
        read(form, data)
    assert caught.value.offset == len(data)


def test_a_map_without_done_is_an_error():
    with pytest.raises(FrameInvalid, match=r"byte 0: done is None") as caught:
        FrameReader("msgpack").feed(bytes.fromhex("81a369647391 01".replace(" ", "")))
    assert caught.value.offset == 0


def test_a_null_finish_reason_is_none():
    data = bytes.fromhex("83a369647390a4646f6e65c3ad66696e6973685f726561736f6ec0")
    assert read("msgpack", data) == [Frame((), True)]


@pytest.mark.parametrize(
    ("ids", "error"), [("91ff", FrameInvalid), ("91cf0000010000000000", FrameTooLarge), ("91c3", FrameInvalid)]
)
def test_ids_out_of_range_are_errors_in_msgpack(ids, error):
    # codecai hands -1 and 2**40 to the detokenizer.
    data = bytes.fromhex("82a3696473" + ids + "a4646f6e65c3")
    with pytest.raises(error, match="frame at byte 0"):
        FrameReader("msgpack").feed(data)


def test_ids_that_are_not_packed_are_read_in_protobuf():
    # Legal protobuf, which codecai reads as no ids at all.
    assert FrameReader("protobuf").feed(bytes.fromhex("00000006 0805 0806 1001".replace(" ", ""))) == [
        Frame((5, 6), True)
    ]


def test_unknown_fields_of_protobuf_are_skipped():
    data = bytes.fromhex("00000008 0a0105 3a0178 1001".replace(" ", ""))
    assert FrameReader("protobuf").feed(data) == [Frame((5,), True)]


def test_frames_of_the_compact_proposal_are_refused(wire):
    # Nothing ships them, and their number keys say nothing to a reader of v0.5.
    for case in wire["compact_frames_v0_6_proposal"]["cases"]:
        with pytest.raises(FrameInvalid, match="ids is None"):
            FrameReader("msgpack").feed(bytes.fromhex(case["msgpack_hex"]))
