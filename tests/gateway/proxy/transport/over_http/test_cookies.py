"""Cookies of balancers go back to the address that set them, in the session in which they were set."""

import pytest

from gateway.proxy.transport.http.channel import CookieJar


def sent(*answers):
    jar = CookieJar()
    for set_cookies in answers:
        jar.take("\n".join(set_cookies))
    return jar.lines


def test_cookies_are_sent_back_without_what_was_said_about_them():
    expires = "route=a; Expires=Wed, 21 Oct 2099 07:28:00 GMT; Path=/; HttpOnly; Secure"
    assert sent([expires, "b=c=d"]) == b"cookie: route=a; b=c=d\r\n"


def test_later_value_takes_the_place_of_an_earlier_one_and_an_ended_cookie_goes():
    assert sent(["a=1", "b=2"], ["a=3", "b=; Max-Age=0"]) == b"cookie: a=3\r\n"


@pytest.mark.parametrize("odd", ["", "no pair", "=nameless", "a=\u00fc", "a=\x01", "a=" + "x" * 5000])
def test_what_is_no_cookie_is_not_sent(odd):
    assert sent([odd]) == b""


def test_number_of_cookies_is_bounded_and_the_oldest_go_first():
    lines = sent([f"c{number}=1" for number in range(50)])
    assert lines.count(b"=") == 16
    assert b"c49=1" in lines
