"""Laws of frames in every format: what is written is read, however it is cut, and nothing else comes of bad bytes."""

import struct
import sys
from collections import deque

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.errors import FormatUnavailable, FrameError, FrameInvalid, FrameTooLarge, FrameTruncated
from leaf_sdk.wire import (
    MAX_ID,
    Extras,
    Frame,
    FrameReader,
    FrameWriter,
    Limits,
    Spliced,
    ToolCall,
    Usage,
    available_formats,
    merge,
)
from tests.cases import each_of

from .conftest import FORMATS, cut, frames, read, streams, written

every_format = pytest.mark.parametrize("form", FORMATS)
FULL = Frame(
    (5,),
    True,
    "error",
    (ToolCall("{}", "f", "tc_1"),),
    Extras((1, 2), (Spliced((3,), "leaf", "tc_1"), Spliced((4,), "scaffold")), Usage(1, 2, 3), "why", 7, (9,)),
)


@every_format
@given(stream=streams, places=st.lists(st.integers(0, 400), max_size=8))
def test_any_cut_of_the_bytes_gives_the_same_frames(form, stream, places):
    reader = FrameReader(form)
    found = [frame for piece in cut(written(form, stream), places) for frame in reader.feed(piece)]
    assert found + reader.close() == stream


@every_format
@given(stream=streams, data=st.data())
def test_a_stream_that_ends_anywhere_early_is_an_error_at_its_end(form, stream, data):
    whole = written(form, stream)
    end = data.draw(st.integers(0, len(whole) - 1))
    reader = FrameReader(form)
    assert reader.feed(whole[:end]) == stream[: _frames_before(form, stream, end)]
    with pytest.raises(FrameTruncated) as caught:
        reader.close()
    assert caught.value.offset == end


def _frames_before(form, stream, end):
    writer, at = FrameWriter(form), 0
    for number, frame in enumerate(stream):
        at += len(writer.write(frame))
        if at > end:
            return number
    return len(stream)


@every_format
@given(garbage=st.binary(max_size=60), places=st.lists(st.integers(0, 60), max_size=4))
def test_any_bytes_give_frames_or_our_own_error_wherever_they_are_cut(form, garbage, places):
    assert _outcome(form, [garbage]) == _outcome(form, cut(garbage, places))


@every_format
@given(stream=streams, flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 7)), min_size=1, max_size=3))
def test_flipped_bits_give_frames_or_our_own_error(form, stream, flips):
    data = bytearray(written(form, stream))
    for place, bit in flips:
        data[place % len(data)] ^= 1 << bit
    _outcome(form, [bytes(data)])


def _outcome(form, pieces):
    """The frames, and the kind and place of the error after them."""
    reader, found = FrameReader(form), []
    try:
        for piece in pieces:
            found += reader.feed(piece)
        reader.close()
    except FrameError as error:
        return found, type(error), error.offset
    return found, None, None


@every_format
def test_a_frame_with_everything_comes_back_whole(form):
    assert read(form, written(form, [FULL])) == [FULL]


@every_format
def test_frames_before_a_fault_are_given_and_the_fault_raises_after_them(form):
    good = written(form, [Frame((1,)), Frame((2,))])
    reader = FrameReader(form)
    assert reader.feed(good + b"\xff\xff\xff\xff\xff") == [Frame((1,)), Frame((2,))]
    for _ in range(2):
        with pytest.raises(FrameError) as caught:
            reader.feed(written(form, [Frame((3,))]))
        assert caught.value.offset == len(good)
    with pytest.raises(FrameError):
        reader.close()


@every_format
def test_offsets_count_frames_that_came_one_by_one(form):
    writer, reader, size = FrameWriter(form), FrameReader(form), 0
    for frame in (Frame((1,)), Frame((2, 3)), Frame((), tool_calls=(ToolCall("{}"),)), Frame((4,))):
        data = writer.write(frame)
        size += len(data)
        assert reader.feed(data) == [frame]
    with pytest.raises(FrameError) as caught:
        reader.feed(b"\xff\xff\xff\xff\xff")
    assert caught.value.offset == size


@every_format
def test_plain_frames_are_held_to_the_limits_too(form):
    data = written(form, [Frame(tuple(range(1000, 1040)))])
    assert FrameReader(form, Limits(frame_bytes=len(data))).feed(data) == [Frame(tuple(range(1000, 1040)))]
    for limits in (Limits(frame_bytes=60), Limits(ids=39), Limits(largest_id=1038)):
        with pytest.raises(FrameTooLarge) as caught:
            FrameReader(form, limits).feed(data)
        assert caught.value.offset == 0


@every_format
def test_nothing_is_written_after_done(form):
    writer = FrameWriter(form)
    size = len(writer.write(Frame((1,), True)))
    assert writer.done
    with pytest.raises(FrameInvalid, match="after a frame that says done") as caught:
        writer.write(Frame((2,)))
    assert caught.value.offset == size


@every_format
@pytest.mark.parametrize("token", [-1, MAX_ID + 1])
def test_an_id_out_of_range_is_not_written_and_the_stream_goes_on(form, token):
    writer = FrameWriter(form)
    first = writer.write(Frame((7,)))
    with pytest.raises(FrameInvalid, match="can't be written"):
        writer.write(Frame((8, token)))
    assert read(form, first + writer.write(Frame((9,), True))) == [Frame((7,)), Frame((9,), True)]


@every_format
def test_an_id_over_the_readers_limit_is_an_error(form):
    limits = Limits(largest_id=49_151)
    data = written(form, [Frame((49_151,)), Frame((49_152,))])
    reader = FrameReader(form, limits)
    assert reader.feed(data) == [Frame((49_151,))]
    with pytest.raises(FrameTooLarge, match="49152"):
        reader.close()


@every_format
@pytest.mark.parametrize("number", [2**32 + 5, 2**32 + 2**31, 2**63])
def test_no_id_is_cut_to_32_bits(form, number):
    data = {
        "msgpack": msgpack.packb({"ids": [number], "done": True}),
        "protobuf": _message(_varint_field(1, number) + b"\x10\x01"),
    }[form]
    with pytest.raises(FrameTooLarge):
        FrameReader(form).feed(data)


def _varint_field(field, number):
    out = bytearray([field << 3])
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _message(payload):
    return struct.pack(">I", len(payload)) + payload


def test_a_varint_without_end_is_an_error():
    with pytest.raises(FrameInvalid, match="byte 0 is not a CodecFrame"):
        FrameReader("protobuf").feed(_message(b"\x08" + b"\x80" * 11 + b"\x01"))


@pytest.mark.parametrize(
    "payload",
    ["0a", "0a05", "0a0180", "0affffffffff7f" + "00" * 30, "0a80808080808001" + "00" * 30, "0a1e" + "80" * 30],
)
def test_a_message_that_is_cut_off_inside_its_length_is_an_error(payload):
    with pytest.raises(FrameInvalid, match="byte 0 is not a CodecFrame"):
        FrameReader("protobuf").feed(_message(bytes.fromhex(payload)))


@each_of("count", [0, 1, 11, 12, 13, 63, 64, 127, 128, 20_000])
def test_every_length_of_a_list_is_read(count):
    for form in FORMATS:
        frame = Frame(tuple(number * 37 % 49_152 for number in range(count)))
        assert FrameReader(form).feed(written(form, [frame])) == [frame]


def test_a_length_over_the_limit_is_refused_before_the_frame_comes():
    with pytest.raises(FrameTooLarge, match=r"claims 4294967295 bytes, expected at most 2097152"):
        FrameReader("protobuf").feed(b"\xff\xff\xff\xff")


def test_a_map_that_never_ends_is_given_up_at_the_limit():
    reader = FrameReader("msgpack", Limits(frame_bytes=10_000))
    reader.feed(b"\xdf\x00\x00\x04\x00")
    entries = (msgpack.packb(f"key {number}") + msgpack.packb("x" * 100) for number in range(1000))
    with pytest.raises(FrameTooLarge, match="goes on for more than 10000 bytes"):
        deque(map(reader.feed, entries), maxlen=0)


@every_format
def test_frames_of_the_greatest_size_pass_and_greater_ones_do_not(form):
    frame = Frame((), True, "r" * 5000)
    size = len(written(form, [frame]))
    room = size - 4 if form == "protobuf" else size
    assert FrameReader(form, Limits(frame_bytes=room)).feed(written(form, [frame])) == [frame]
    with pytest.raises(FrameTooLarge):
        FrameReader(form, Limits(frame_bytes=room - 1)).feed(written(form, [frame]))


@every_format
def test_many_frames_in_one_piece_may_be_longer_than_one_frame_may_be(form):
    stream = [*(Frame((number,)) for number in range(2000)), Frame((), True)]
    reader = FrameReader(form, Limits(frame_bytes=64))
    assert reader.feed(written(form, stream)) == stream


@every_format
def test_lists_over_the_limit_are_refused(form):
    limits = Limits(ids=3, parts=2)
    many_calls = Frame((), True, None, (ToolCall("{}"),) * 3)
    many_parts = Frame((), True, None, (), Extras(spliced=(Spliced((), "leaf"),) * 3))
    many_regions = Frame((), True, None, (), Extras(region_ids=(1, 2, 3, 4)))
    for frame in (Frame((1, 2, 3, 4), True), many_calls, many_parts, many_regions):
        with pytest.raises(FrameTooLarge):
            FrameReader(form, limits).feed(written(form, [frame]))
    assert FrameReader(form, limits).feed(written(form, [Frame((1, 2, 3), True)])) == [Frame((1, 2, 3), True)]


def test_arrays_that_claim_more_than_they_hold_take_no_memory(resident_growth):
    reader = FrameReader("msgpack")
    claims = b"\x81\xa1x" + b"\xdd\x00\x04\x00\x00" * 500  # 500 arrays in each other, of 262,144 each
    assert resident_growth(lambda: reader.feed(claims)) < 64 * 2**20


def test_a_frame_in_crumbs_is_put_together_once():
    # A frame of 300 KB that comes byte by byte: joined anew at every byte it would be 45 GB of copying.
    frame = Frame(tuple(range(100_000, 200_000)), True)
    reader, data = FrameReader("protobuf"), written("protobuf", [frame])
    assert [found for at in range(len(data)) for found in reader.feed(data[at : at + 1])] == [frame]


@pytest.mark.parametrize("data", [b"<html>", b"data: {", b'{"error": 1}', b"\x93\x01\x02\x03"])
def test_another_content_type_is_told_by_its_first_bytes(data):
    with pytest.raises(FrameInvalid, match=r"frame at byte 0|at byte 0 there is no") as caught:
        FrameReader("msgpack").feed(data)
    assert caught.value.offset == 0


@each_of("key", ["finish_reason", "tool_calls", "x_usage", "x_error", "x_seq", "x_spliced", "x_region_ids"])
@each_of("value", [True, -1, [1, "2"], {"ids": 1}])
def test_a_known_field_of_another_type_is_an_error_that_names_it(key, value):
    with pytest.raises(FrameInvalid, match=r"frame at byte 0: (x_|finish_reason|tool_calls|arguments_json|ids|source)"):
        FrameReader("msgpack").feed(msgpack.packb({"ids": [], "done": True, key: value}))


def test_unknown_fields_of_any_kind_and_any_order_are_skipped():
    fields = {"x_new": {"a": [1]}, 7: None, "done": True, b"raw": 1.5, "ids": [1], "t": msgpack.Timestamp(1, 2)}
    assert read("msgpack", msgpack.packb(fields)) == [Frame((1,), True)]


@given(earlier=frames, later=frames)
def test_merging_keeps_the_order_of_the_ids_or_does_not_merge(earlier, later):
    merged = merge(earlier, later)
    if merged is not None:
        assert merged.context_ids == earlier.context_ids + later.context_ids
        assert (merged.done, merged.tool_calls) == (later.done, later.tool_calls)
    assert merged is not None or not earlier.is_plain or later.extras.prompt_ids


@pytest.mark.parametrize("end", [FrameWriter, FrameReader])
def test_an_unknown_format_is_named(end):
    with pytest.raises(FormatUnavailable, match=r"'protobuf-delta' can't be used here, expected one of msgpack"):
        end("protobuf-delta")


@pytest.mark.parametrize("end", [FrameWriter, FrameReader])
def test_protobuf_without_its_library_is_unavailable(monkeypatch, end):
    monkeypatch.delitem(sys.modules, "leaf_sdk.wire.protobuf_frames", raising=False)
    monkeypatch.delattr("leaf_sdk.wire.protobuf_frames", raising=False)
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    with pytest.raises(FormatUnavailable, match=r"codec-leaf\[wire\]"):
        end("protobuf")
    assert available_formats() == ("msgpack",)


def test_all_formats_are_available_here():
    assert available_formats() == FORMATS
