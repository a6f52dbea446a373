"""What an origin is called, in a `Host` header and to a person."""

from base64 import b64encode

import pytest

from gateway.config.address import Origin, read_url


@pytest.mark.parametrize(
    ("origin", "authority", "shown"),
    [
        (Origin(False, "a.example", 80), "a.example", "http://a.example"),
        (Origin(False, "a.example", 443), "a.example:443", "http://a.example:443"),
        (Origin(True, "a.example", 443), "a.example", "https://a.example"),
        (Origin(True, "a.example", 80), "a.example:80", "https://a.example:80"),
        (Origin(False, "::1", 8000), "[::1]:8000", "http://[::1]:8000"),
        (Origin(False, "/run/engine.sock", 0), "localhost", "unix:/run/engine.sock"),
    ],
)
def test_origin_is_named_without_the_default_port(origin: Origin, authority: str, shown: str) -> None:
    assert (origin.authority, str(origin)) == (authority, shown)


def test_path_in_place_of_a_host_is_a_socket_on_this_machine() -> None:
    assert Origin(False, "/run/engine.sock", 0).is_socket is True
    assert Origin(False, "a.example", 80).is_socket is False


@pytest.mark.parametrize(
    ("reference", "target", "goes_along"),
    [
        ("messages?id=1", "https://a.example/sse/messages?id=1", True),
        ("https://a.example:443/b", "https://a.example/b", True),
        ("https://b.example/b", "https://b.example/b", False),
        ("//b.example/b", "https://b.example/b", False),
        ("http://a.example:443/b", "http://a.example:443/b", False),
        ("https://a.example:8443/b", "https://a.example:8443/b", False),
        ("https://eve:secret@b.example/b", "https://b.example/b", False),
    ],
)
def test_credentials_of_an_address_go_along_at_its_origin_only(reference: str, target: str, goes_along: bool) -> None:
    ours = read_url("https://user:word@a.example/sse/")
    joined = ours.joined(reference)

    assert ours.authorization is not None
    assert str(joined) == target
    assert joined.authorization == (ours.authorization if goes_along else None)


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("http://a.example", Origin(False, "a.example", 80), "/"),
        ("https://a.example?q=a b", Origin(True, "a.example", 443), "/?q=a%20b"),
        ("https://a.example:8443/a%20b/ü?", Origin(True, "a.example", 8443), "/a%20b/%C3%BC"),
        ("http://[::1]:8000/x#y", Origin(False, "::1", 8000), "/x"),
    ],
)
def test_address_is_read(url: str, origin: Origin, path: str) -> None:
    address = read_url(url)

    assert (address.origin, address.path, address.authorization) == (origin, path, None)


@pytest.mark.parametrize(
    ("url", "sent"), [("http://a:b%20c@x", "a:b c"), ("http://a@x", "a:"), ("http://:b@x", ":b"), ("http://@x", ":")]
)
def test_user_and_password_of_an_address_sign_in(url: str, sent: str) -> None:
    assert read_url(url).authorization == f"Basic {b64encode(sent.encode()).decode()}"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://a.example", "is not the URL of a server"),
        ("http:///x", "is not the URL of a server"),
        ("a.example", "is not the URL of a server"),
        ("http://a..example", "contains an invalid host name"),
    ],
)
def test_address_of_no_server_is_refused(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_url(url)
