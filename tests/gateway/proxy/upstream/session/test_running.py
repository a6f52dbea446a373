"""Requests in flight: what is left of those that nobody waits for any more."""

import weakref

import pytest

from gateway.proxy.caller import Nobody
from gateway.proxy.upstream.session import in_flight
from gateway.proxy.upstream.session.in_flight import Requests, Running


@pytest.mark.parametrize("most", [0, 1])
def test_request_that_was_given_up_keeps_nothing_of_its_caller(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The server may never answer it, and a request may be large.
    monkeypatch.setattr(in_flight, "_MOST", most)
    requests, caller = Requests(), Nobody(modern=True)
    request = Running(caller, requests, lambda *_: None)
    requests.begin(request)
    left = weakref.ref(caller)
    del caller

    request.given_up()

    assert left() is None
    assert len(requests.given_up) == most
