"""Headers of 2026-07-28: our rules beside those of mcp, whose functions are the reference."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared import inbound

from gateway.protocol.eras import CAPABILITIES_KEY, VERSION_KEY
from gateway.protocol.headers import (
    ERROR_STATUS,
    METHOD_HEADER,
    NAME_HEADER,
    NAMED_BY,
    ROUTING_HEADERS,
    VERSION_HEADER,
    check_envelope,
    decode_value,
    encode_value,
    routing_headers,
    unsupported,
)
from tests.cases import each_of

METHODS = ["tools/call", "prompts/get", "resources/read", "tools/list", "x"]
NAMES = st.one_of(st.sampled_from(["a", "", " a", "a ", "é", "=?base64?YQ==?=", "a\n", "\x7f"]), st.text(max_size=8))
SENTINELS = st.one_of(
    st.text(max_size=6).map(lambda text: f"=?base64?{text}?="),
    st.sampled_from(["=?base64?YQ==?=", "=?base64?YR==?=", "=?base64?/w==?=", "=?base64??=", "=?base64?YQ==?=\n"]),
)
VERSIONS = st.sampled_from(["2026-07-28", "2025-11-25", "1900-01-01", 7, None])

ENVELOPES = st.fixed_dictionaries({}, optional={VERSION_KEY: VERSIONS, CAPABILITIES_KEY: st.just({})})
METAS = st.one_of(st.none(), st.just([]), ENVELOPES)


@given(NAMES)
def test_value_survives_the_header(value):
    encoded = encode_value(value)

    assert encoded == inbound.encode_header_value(value)
    assert encoded.isascii()
    assert encoded == encoded.strip()
    assert decode_value(encoded) == value


@given(st.one_of(NAMES, SENTINELS))
@example("=?base64?é?=")
def test_header_means_what_it_means_to_mcp_or_nothing(value):
    try:
        expected = inbound.decode_header_value(value)
    except ValueError:  # its own decoder stumbles over a sentinel that is not ASCII
        expected = None

    assert decode_value(value) == expected


def test_tables_are_those_of_mcp():
    assert dict(NAMED_BY) == dict(inbound.NAME_BEARING_METHODS)
    assert dict(ERROR_STATUS) == dict(inbound.ERROR_CODE_HTTP_STATUS)


def test_request_names_its_method_and_what_it_is_about():
    assert routing_headers("resources/read", {"uri": "file:///é"}) == {
        "mcp-method": "resources/read",
        "mcp-name": "=?base64?ZmlsZTovLy/DqQ==?=",
    }
    assert routing_headers("tools/list", {"name": "x"}) == {"mcp-method": "tools/list"}
    assert routing_headers("tools/call", {"name": 7}) == {"mcp-method": "tools/call"}


@given(
    st.sampled_from(METHODS),
    st.fixed_dictionaries({}, optional={"name": st.one_of(NAMES, st.just(3)), "uri": NAMES}),
    METAS,
    st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {},
            optional={
                VERSION_HEADER: st.sampled_from(["2026-07-28", "2025-11-25", "1900-01-01"]),
                METHOD_HEADER: st.sampled_from(METHODS),
                NAME_HEADER: st.one_of(NAMES, NAMES.map(encode_value)),
            },
        ),
    ),
)
def test_envelope_is_judged_as_mcp_judges_it(method, params, meta, headers):
    params = params | ({} if meta is None else {"_meta": meta})
    verdict = inbound.classify_inbound_request({"method": method, "params": params}, headers=headers)
    error = check_envelope(method, params, headers)

    assert (None if error is None else error["code"]) == getattr(verdict, "code", None)


@given(st.sampled_from(METHODS), NAMES)
def test_request_with_the_headers_that_we_emit_is_in_order(method, name):
    params = {"name": name, "uri": name, "_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}}

    assert check_envelope(method, params, {VERSION_HEADER: "2026-07-28"} | routing_headers(method, params)) is None


VERSIONED = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}
CALL = {"name": "b", "_meta": VERSIONED}
CALL_HEADERS = {VERSION_HEADER: "2026-07-28", METHOD_HEADER: "tools/call", NAME_HEADER: "b"}


@each_of(
    ("params", "headers", "message"),
    [
        (
            {},
            CALL_HEADERS,
            f"params._meta lacks {VERSION_KEY!r} and {CAPABILITIES_KEY!r}: every request must have both",
        ),
        (
            {"_meta": {VERSION_KEY: "2026-07-28"}},
            CALL_HEADERS,
            f"params._meta lacks {CAPABILITIES_KEY!r}: every request must have both",
        ),
        ({"_meta": {**VERSIONED, VERSION_KEY: 7}}, None, f"{VERSION_KEY!r} must be a string"),
        ({"_meta": {**VERSIONED, VERSION_KEY: "1900-01-01"}}, None, "Unsupported protocol version"),
        (
            CALL,
            {**CALL_HEADERS, VERSION_HEADER: "1900-01-01"},
            f"the {VERSION_HEADER} header does not match {VERSION_KEY!r} of the body: send the same in both",
        ),
        (
            CALL,
            {**CALL_HEADERS, METHOD_HEADER: "prompts/get"},
            f"the {METHOD_HEADER} header does not match the body's method: send the same in both",
        ),
        (
            CALL,
            {**CALL_HEADERS, NAME_HEADER: "a"},
            f"the {NAME_HEADER} header does not match params.name of the body: send the same in both",
        ),
        (CALL, CALL_HEADERS, None),
        (CALL, None, None),
        ({"_meta": VERSIONED}, CALL_HEADERS, None),
    ],
)
def test_error_of_an_envelope_names_what_is_wrong_with_it(params, headers, message):
    error = check_envelope("tools/call", params, headers)

    assert (error and error["message"]) == message


def test_capabilities_that_are_no_object_are_refused():
    error = check_envelope("x", {"_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: []}})

    assert error is not None
    assert (error["code"], "must be an object" in error["message"]) == (-32602, True)


def test_capabilities_that_are_too_many_are_refused():
    many = {"experimental": {f"{n}": {} for n in range(300)}}
    error = check_envelope("x", {"_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: many}})

    assert error is not None
    assert (error["code"], "more than 256 entries: announce less" in error["message"]) == (-32602, True)


def test_unknown_version_is_answered_with_those_that_a_request_can_ask_for():
    data = unsupported("1900-01-01")["data"]

    assert data["requested"] == "1900-01-01"
    assert data["supported"] == ["2026-07-28"]


@pytest.mark.parametrize("name", [VERSION_HEADER, METHOD_HEADER, NAME_HEADER, "accept"])
def test_headers_that_may_come_once_are_those_that_mcp_refuses_twice(name):
    assert (name in ROUTING_HEADERS) == (inbound.find_duplicated_routing_header([(name, ""), (name, "")]) == name)


@pytest.mark.parametrize("header", [None, "a", "=?base64?!?="])
def test_name_that_the_header_does_not_say_is_a_mismatch(header):
    params = {"name": "b", "_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}}
    headers = {VERSION_HEADER: "2026-07-28", METHOD_HEADER: "tools/call"}
    error = check_envelope("tools/call", params, headers | ({} if header is None else {NAME_HEADER: header}))

    assert error is not None
    assert error["code"] == -32020
