"""Which coding a client gets, and why: its q-values first, then what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.wire import AT_ONCE, BATCH, CODINGS, INTERACTIVE, FlushPolicy, Reason, choose
from tests.cases import each_of

ALL = "gzip, br, zstd"


def chosen(header, policy=INTERACTIVE, **more):
    choice = choose(header, policy, **more)
    return choice.coding, choice.reason.value


@pytest.mark.parametrize("header", [None, "", "  "])
def test_a_client_that_does_not_ask_gets_identity(header):
    assert chosen(header) == ("identity", "not_asked")


@each_of(
    ("header", "expected"),
    [
        ("gzip", ("gzip", "only_one")),
        ("identity", ("identity", "only_one")),
        ("deflate, x-foo", ("identity", "only_one")),
        ("br;q=0.9, gzip;q=0.1", ("br", "client_weights")),
        ("BR ; Q=1, gzip;q=0.5", ("br", "client_weights")),
        ("*", ("gzip", "no_dictionary")),
        ("*, zstd;q=0", ("gzip", "measured_best")),
        ("gzip;q=0, *;q=0.5, zstd;q=0", ("br", "only_one")),
        ("identity;q=0, br", ("br", "only_one")),
        ("gzip;q=0.5, identity", ("identity", "client_weights")),
        ("gzip;q=0", ("identity", "only_one")),
        ("*;q=0", ("identity", "none_accepted")),
        ("identity;q=0", ("identity", "none_accepted")),
        ("gzip;q=rubbish", ("identity", "only_one")),
        ("gzip;q=nan", ("identity", "only_one")),
        ("gzip;q=7, br;q=0.9", ("gzip", "client_weights")),
        ("gzip;level=1;q=0.3, br;q=0.4", ("br", "client_weights")),
        ("zstd", ("identity", "no_dictionary")),
        (",,gzip,", ("gzip", "only_one")),
    ],
)
def test_headers_are_read_as_rfc_9110_says(header, expected):
    assert chosen(header) == expected


def test_the_measurement_decides_between_codings_that_the_client_likes_equally():
    assert chosen(ALL, INTERACTIVE, has_dictionary=True) == ("gzip", "measured_best")
    assert chosen(ALL, AT_ONCE, has_dictionary=True) == ("gzip", "measured_best")
    assert chosen(ALL, BATCH, has_dictionary=True) == ("zstd", "measured_best")
    assert chosen("gzip, br", BATCH) == ("br", "measured_best")


def test_zstd_needs_a_dictionary_or_leave_to_do_without():
    assert chosen(ALL, BATCH) == ("br", "no_dictionary")
    assert chosen("zstd", BATCH, plain_zstd=True) == ("zstd", "only_one")
    assert chosen("zstd", BATCH, has_dictionary=True) == ("zstd", "only_one")


def test_short_streams_are_sent_as_they_are():
    assert chosen(ALL, expected_ids=16) == ("identity", "too_short")
    assert chosen(ALL, expected_ids=17) == ("gzip", "no_dictionary")
    assert chosen(ALL, BATCH, expected_ids=64) == ("identity", "too_short")
    assert chosen("gzip, identity;q=0", expected_ids=4) == ("gzip", "only_one")


def test_a_server_without_a_library_does_not_choose_it():
    assert chosen(ALL, BATCH, available=("identity", "gzip")) == ("gzip", "only_one")


def test_the_effort_follows_how_rarely_the_policy_flushes():
    efforts = [choose("gzip", FlushPolicy(max_delay=delay)).effort for delay in (0.0, 0.04, 0.999, 1.0)]
    assert efforts == ["streaming", "streaming", "streaming", "whole"]


@given(header=st.text(st.sampled_from("gzip br,;q=0.15*identyzs"), max_size=60), has_dictionary=st.booleans())
def test_any_header_gives_a_coding_that_the_client_did_not_refuse(header, has_dictionary):
    choice = choose(header, INTERACTIVE, has_dictionary=has_dictionary)
    assert choice.coding in CODINGS
    refused = {part.partition(";")[0].strip() for part in header.split(",") if part.strip().endswith(";q=0")}
    kept = {part.partition(";")[0].strip() for part in header.split(",") if not part.strip().endswith(";q=0")}
    assert choice.coding not in refused - kept or choice.reason is Reason.NONE_ACCEPTED


# The vectors on which our choice for whole bodies is another one: their number, our choice, and why.
_DIFFERENT = {
    4: ("br", "on whole bodies br is the smallest without a dictionary; where bodies are flushed ours is gzip too"),
    5: ("br", "the same"),
    8: ("zstd", "no profile holds zstd back: here every coding is flushed"),
    11: ("zstd", "'*' names every coding (RFC 9110 12.5.3), and the reference ignores it"),
    16: ("br", "q-values are the client's wish, and the reference lets them change nothing"),
    17: ("zstd", "whole streams were measured, so no sample of one decides"),
    20: ("br", "no profile holds br back"),
}


def test_the_picker_vectors_hold_or_differ_for_a_reason_that_stands_above(vectors):
    for number, case in enumerate(vectors("wire")["compression_picker_v0_5"]["cases"]):
        has_dictionary = case["zstdHasDict"] and case["zstdEnabled"]
        coding = choose(case["accept_encoding"], BATCH, has_dictionary=has_dictionary).coding
        assert coding == _DIFFERENT.get(number, [case["encoding"]])[0], (number, case)


def test_where_bodies_are_flushed_gzip_comes_before_a_dictionary(vectors):
    # The reference prefers zstd there, measured unflushed: it sends nothing before the end.
    for case in vectors("wire")["compression_picker_v0_5"]["cases"]:
        header = case["accept_encoding"] or ""
        if "gzip" in header and "zstd" in header:
            assert choose(header, INTERACTIVE, has_dictionary=True).coding == "gzip"
