"""Params and results of one era as those of the other."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.eras import (
    CACHEABLE,
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    NEWEST_HANDSHAKE,
    NEWEST_MODERN,
    PER_HOP,
    SERVER_INFO_KEY,
    VERSION_KEY,
    is_input_required,
    meta_of,
    params_to_handshake,
    params_to_modern,
    result_to_handshake,
    result_to_modern,
    with_meta,
    without_hop,
)

VALUES = st.recursive(st.none() | st.integers() | st.text(max_size=8), st.lists, max_leaves=4)
# Hypothesis also draws words of the code itself, and what the modern era adds is no key of a handshake result.
KEYS = (st.text() | st.sampled_from(["content", "isError", "structuredContent", "x-vendor", "com.example/k"])).filter(
    lambda key: key not in {"resultType", "ttlMs", "cacheScope", "_meta", SERVER_INFO_KEY}
)
META = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)
RESULTS = st.dictionaries(KEYS, VALUES, max_size=4).flatmap(
    lambda fields: st.just(fields) | META.map(lambda meta: {**fields, "_meta": meta})
)
METHODS = st.sampled_from([*sorted(CACHEABLE), "tools/call", "prompts/get"])
INFO = {"name": "s", "version": "1"}


@given(METHODS, RESULTS, st.sampled_from([None, {}, INFO]))
def test_result_that_went_to_the_modern_era_comes_back_as_it_was(method, result, info):
    before = dict(result)

    assert result_to_handshake(result_to_modern(method, result, info)) == before
    assert result == before


@given(METHODS, RESULTS)
def test_modern_result_says_what_a_modern_client_must_know(method, result):
    made = result_to_modern(method, result, INFO)

    assert made["resultType"] == "complete"
    assert ("ttlMs" in made and "cacheScope" in made) == (method in CACHEABLE)
    assert meta_of(made)[SERVER_INFO_KEY] == INFO
    assert {key: value for key, value in made.items() if key in result and key != "_meta"} == {
        key: value for key, value in result.items() if key != "_meta"
    }


@given(METHODS, RESULTS)
def test_handshake_result_has_nothing_of_the_modern_era(method, result):
    back = result_to_handshake(result_to_modern(method, result, INFO))

    assert not {"resultType", "ttlMs", "cacheScope"} & back.keys()
    assert SERVER_INFO_KEY not in meta_of(back)


def test_listing_for_a_modern_client_is_not_to_be_cached():
    assert result_to_modern("tools/list", {"tools": []}, None) == {
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "tools": [],
    }
    assert result_to_modern("tools/call", {}, None) == {"resultType": "complete"}


def test_newest_versions_are_those_that_come_last():
    assert (NEWEST_HANDSHAKE, NEWEST_MODERN) == ("2025-11-25", "2026-07-28")


def test_result_of_a_server_that_says_how_long_it_holds_keeps_its_word():
    assert result_to_modern("tools/list", {"ttlMs": 5, "cacheScope": "public"}, None)["ttlMs"] == 5


def test_empty_handshake_result_stays_empty():
    assert result_to_handshake({"resultType": "complete", "_meta": {SERVER_INFO_KEY: INFO}}) == {}


def test_what_describes_the_clients_own_hop_is_left_out_and_all_else_stays():
    meta = dict.fromkeys(PER_HOP, 1) | {"progressToken": 7, "traceparent": "00", "com.example/k": None}

    assert without_hop(meta) == {"progressToken": 7, "traceparent": "00", "com.example/k": None}


def test_params_for_a_modern_server_carry_the_envelope_of_our_hop_and_the_callers_own_keys():
    sent = params_to_modern(
        {"name": "t", "_meta": {"com.example/k": 1}}, version="V", client_info=INFO, capabilities={}, log_level="info"
    )

    assert sent == {
        "name": "t",
        "_meta": {
            "com.example/k": 1,
            VERSION_KEY: "V",
            CLIENT_INFO_KEY: INFO,
            CAPABILITIES_KEY: {},
            LOG_LEVEL_KEY: "info",
        },
    }


def test_log_level_is_named_only_where_one_is_wanted():
    assert LOG_LEVEL_KEY not in params_to_modern({}, version="V", client_info={}, capabilities={})["_meta"]


def test_params_for_a_handshake_server_have_no_rounds_and_no_log_level():
    sent = params_to_handshake(
        {"name": "t", "requestState": "s", "inputResponses": {}, "_meta": {LOG_LEVEL_KEY: "info", "k": 1}}
    )

    assert sent == {"name": "t", "_meta": {"k": 1}}


def test_meta_that_is_no_object_counts_as_none():
    assert meta_of({"_meta": [1]}) == {}
    assert with_meta({"_meta": [1], "a": 1}, {}) == {"a": 1}
    assert with_meta({"_meta": [1], "a": 1}, {"k": 1}) == {"a": 1, "_meta": {"k": 1}}


def test_only_a_result_that_says_so_asks_for_something():
    assert is_input_required({"resultType": "input_required"})
    assert not is_input_required({"resultType": "complete"})
    assert not is_input_required({})
