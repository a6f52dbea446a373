"""URLs taken apart, and who may lead the gateway where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http1.origin import Address, Origin, read_url
from gateway.proxy.transport.http.addresses import check_public, is_public
from gateway.proxy.transport.interface import NoAnswer

IDN = "xn--mller-kva.example"


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
        *("2001:4860:4860::8888", "2001:4860::5efe:8.8.8.8", "2a00:1450:4001::200e"),
    ],
)
def test_address_on_the_internet_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "64:ff9b:1::7f00:1",
        "64:ff9b:1::8.8.8.8",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "fec0::1",
        "feff::1",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:0:127.0.0.1",
        "::ffff:0:8.8.8.8",
        "2002:a9fe:a9fe::1",
        "2002:c0a8:1::1",
        "2001:0:7f00:1:0:0:f7f7:f7f7",
        "2001:4860::5efe:7f00:1",
        "2001:4860::200:5efe:10.0.0.1",
        "fe80::5efe:8.8.8.8",
        "3fff::1",
        "5f00::1",
        "100::1",
        "4000::1",
        "192.0.0.8",
        "192.88.99.1",
        "::ffff:192.88.99.1",
        "no address",
    ],
)
def test_address_of_this_machine_a_private_net_a_link_or_a_group_is_not_public(address):
    assert not is_public(address)


def test_private_address_is_refused_unless_its_origin_is_listed():
    origin = Origin(False, "inner.example", 80)
    check_public(origin, ["8.8.8.8"], frozenset())
    check_public(origin, ["10.0.0.1"], frozenset({origin}))

    with pytest.raises(NoAnswer, match=r"'http://inner.example' .* private address 10.0.0.1"):
        check_public(origin, ["8.8.8.8", "10.0.0.1"], frozenset({Origin(False, "inner.example", 81)}))
