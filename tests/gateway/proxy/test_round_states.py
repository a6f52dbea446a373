"""States of calls that wait here, and of servers: neither is ever taken for the other."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.bridge import PARKED, is_parked, to_client, to_server

STATES = st.lists(st.sampled_from([PARKED, "relayed.", "x"])).map("".join) | st.text()


@given(STATES)
def test_state_of_a_server_comes_back_as_it_was_given_and_is_never_one_of_ours(state: str) -> None:
    seen = to_client({"requestState": state, "resultType": "input_required"})

    assert not is_parked(seen)
    assert to_server(seen) == {"requestState": state, "resultType": "input_required"}


@given(STATES)
def test_state_passes_through_any_number_of_gateways(state: str) -> None:
    through = to_client(to_client(to_client({"requestState": state})))

    assert to_server(to_server(to_server(through))) == {"requestState": state}


def test_state_of_ours_reaches_no_server() -> None:
    assert is_parked({"requestState": f"{PARKED}name"})
    assert to_server({"requestState": f"{PARKED}name"}) == {"requestState": f"{PARKED}name"}


def test_what_is_no_text_is_left_as_it_is() -> None:
    for odd in ({}, {"requestState": None}, {"requestState": 3}, {"requestState": ["relayed."]}):
        assert to_client(odd) == to_server(odd) == odd
        assert not is_parked(odd)
