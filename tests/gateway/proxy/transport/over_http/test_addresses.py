"""URLs taken apart, and who may lead the gateway where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.address import Address, Origin, read_url
from gateway.proxy.transport.http.client import check_public
from gateway.proxy.transport.transport_interface import NoAnswer
from tests.cases import each_of

IDN = "xn--mller-kva.example"


@each_of(
    ("url", "address", "authority"),
    [
        ("http://a/mcp", Address(Origin(False, "a", 80), "/mcp"), "a"),
        ("https://A.Example", Address(Origin(True, "a.example", 443), "/"), "a.example"),
        ("https://a:8443?x=1&y", Address(Origin(True, "a", 8443), "/?x=1&y"), "a:8443"),
        ("http://[::1]:80/", Address(Origin(False, "::1", 80), "/"), "[::1]"),
        ("http://a:443/x#part", Address(Origin(False, "a", 443), "/x"), "a:443"),
        ("http://müller.example/ä b?ö", Address(Origin(False, IDN, 80), "/%C3%A4%20b?%C3%B6"), IDN),
        ("http://a/%2Fx", Address(Origin(False, "a", 80), "/%2Fx"), "a"),
        ("http://u@a/", Address(Origin(False, "a", 80), "/", "Basic dTo="), "a"),
    ],
)
def test_url_is_taken_apart(url, address, authority):
    assert read_url(url) == address
    assert address.origin.authority == authority


def test_address_is_shown_without_its_credentials():
    assert str(read_url("https://user:secret@a:8443/x?y")) == "https://a:8443/x?y"


@pytest.mark.parametrize("url", ["", "a", "ftp://a/", "http:///x", "http://a:99999/", "file:///etc/passwd", "//a/x"])
def test_what_is_no_url_of_a_server_is_refused(url):
    with pytest.raises(ValueError):  # noqa: PT011 - urlsplit has words of its own for some
        read_url(url)


@given(st.text(max_size=40))
def test_path_never_holds_a_blank_or_a_line_end(tail):
    try:
        address = read_url("http://a/" + tail)
    except ValueError:
        return
    assert address.path.isascii()
    assert address.path.isprintable()
    assert " " not in address.path


def test_private_address_is_refused_unless_its_origin_is_listed():
    origin = Origin(False, "inner.example", 80)
    check_public(origin, ["8.8.8.8"], frozenset())
    check_public(origin, ["10.0.0.1"], frozenset({origin}))

    with pytest.raises(NoAnswer, match=r"'http://inner.example' .* private address 10.0.0.1"):
        check_public(origin, ["8.8.8.8", "10.0.0.1"], frozenset({Origin(False, "inner.example", 81)}))
