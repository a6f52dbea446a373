"""Which hosts only this machine reaches, and which texts are addresses of a server."""

import pytest

from gateway.config.address import host_name, is_http_url, is_loopback
from tests.cases import each_of


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "::1", "[::1]"])
def test_loopback_is_known_by_name_and_number(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example"])
def test_everything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("url", ["http://a", "https://a:1/b?c=d", "http://[::1]:80", "http://u:p@a"])
def test_http_address_is_one(url: str) -> None:
    assert is_http_url(url)


@each_of(
    "url",
    [
        *("", "a", "http:", "http://", "ws://a", "http://a:x", "http://a:70000", "http://[::1", "//a"),
        *("http://a..b", f"http://{'a' * 64}.com", f"http://{'a.' * 127}com", "http://a b", "http://a\x1b[0m"),
        "http://a\0b",
    ],
)
def test_other_text_is_no_http_address(url: str) -> None:
    assert not is_http_url(url)


@pytest.mark.parametrize("url", ["http://a:0", "https://a:-1"])
def test_address_with_a_port_that_nobody_listens_on_is_none(url: str) -> None:
    assert not is_http_url(url)


@each_of(
    ("netloc", "name"),
    [
        *(("a.example", "a.example"), ("A.example:80", "a.example"), ("127.0.0.1:1", "127.0.0.1"), ("[::1]", "::1")),
        *(("[::1]:8600", "::1"), ("[::1].evil", None), ("a/b", None), ("u@a", None), ("@a", None), ("a:0", None)),
        *(("a:x", None), ("a:70000", None), ("", None), ("a?b", None), ("[::1", None)),
    ],
)
def test_name_of_a_host_is_read_whole_or_not_at_all(netloc: str, name: str | None) -> None:
    assert host_name(netloc) == name
