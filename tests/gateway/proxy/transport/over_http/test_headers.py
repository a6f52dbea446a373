"""Headers as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http1.connection import header_lines
from gateway.proxy.transport.http.http_answers import challenge_parameters, media_type, status_words
from gateway.proxy.transport.transport_interface import NoAnswer


def test_headers_are_lines():
    assert header_lines({"a": "1", "b": "ü"}) == "a: 1\r\nb: ü\r\n".encode()
    assert header_lines({}) == b""


@pytest.mark.parametrize("bad", ["x\r\ny: z", "x\ny", "x\ry", "x\0", "\r\n"])
def test_value_or_name_that_would_begin_another_line_is_refused(bad):
    with pytest.raises(NoAnswer, match="'b'"):
        header_lines({"a": "1", "b": bad, "c": "2"})
    with pytest.raises(NoAnswer):
        header_lines({bad: "1"})


@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_lines_are_as_many_as_headers_whatever_they_hold(headers):
    try:
        lines = header_lines(headers)
    except (NoAnswer, UnicodeEncodeError):
        return
    assert lines.count(b"\r\n") == lines.count(b"\n") == lines.count(b"\r") == len(headers)


def test_type_is_read_without_its_parameters():
    assert media_type("Text/Event-Stream; charset=utf-8") == "text/event-stream"
    assert media_type("") == ""


def test_status_has_our_words_and_an_unknown_one_none():
    assert status_words(404) == "HTTP 404 Not Found"
    assert status_words(799) == "HTTP 799"


@pytest.mark.parametrize(
    ("challenge", "parameters"),
    [
        (
            'Bearer realm="a b", resource_metadata="https://x/y?z=1,2"',
            {"realm": "a b", "resource_metadata": "https://x/y?z=1,2"},
        ),
        ('bearer error=insufficient_scope,scope="a b"', {"error": "insufficient_scope", "scope": "a b"}),
        (r'Basic realm="x", Bearer a="q\"q"', {"a": 'q"q'}),
        ('Bearer a="1", A="2"', {"a": "1"}),
        ("Basic realm=x", {}),
        ("Bearer", {}),
        ("", {}),
        ('Bearer a="unclosed', {}),
    ],
)
def test_parameters_of_a_challenge_are_read(challenge, parameters):
    assert challenge_parameters(challenge) == parameters


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  ", 'Basic realm="x", Bearer '])
@pytest.mark.parametrize("field", ['resource_metadata="{}"', 'Resource_Metadata = "{}"', "resource_metadata={}"])
@pytest.mark.parametrize("more", ["", ', error="invalid_token"', ', scope="a b",'])
def test_metadata_is_found_however_a_challenge_is_spelled(scheme, field, more):
    url = "https://example.com/.well-known/oauth-protected-resource"
    assert challenge_parameters(scheme + field.format(url) + more)["resource_metadata"] == url


@given(st.text())
def test_any_challenge_is_read_without_an_exception(text):
    assert isinstance(challenge_parameters("Bearer " + text), dict)
