"""URIs that a server gave: the latest of each principal, within bounds, whatever an answer holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.caller import Principal
from gateway.proxy.upstream import given_uris
from gateway.proxy.upstream.given_uris import EACH, GivenUris
from gateway.proxy.upstream.supervision.session_member import SessionMember

ANN, BOB = Principal("ann"), Principal("bob")


def session() -> SessionMember:
    """One of which nothing is asked."""
    return SessionMember(None, None)  # pyright: ignore[reportArgumentType]


GIVER = session()


def links(*uris: object) -> dict[str, object]:
    return {"content": [{"type": "resource_link", "uri": uri} for uri in uris]}


def test_latest_of_a_principal_are_remembered_and_one_that_came_again_is_late():
    uris = GivenUris()
    for n in range(EACH):
        uris.note(links(f"x:{n}"), ANN, GIVER)
    uris.note(links("x:0"), ANN, GIVER)
    uris.note(links("x:new"), ANN, GIVER)

    assert [uris.has(uri, ANN) for uri in ("x:0", "x:1", "x:2", "x:new")] == [True, False, True, True]


def test_principal_with_many_loses_before_one_with_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(given_uris, "_MOST", 5)
    uris = GivenUris()
    uris.note(links("x:bob"), BOB, GIVER)
    uris.note(links(*(f"x:{n}" for n in range(10))), ANN, GIVER)

    assert uris.has("x:bob", BOB)
    assert [uris.has(f"x:{n}", ANN) for n in (5, 6, 9)] == [False, True, True]


def test_one_answer_gives_as_many_as_are_remembered():
    uris = GivenUris()
    uris.note(links(*(f"x:{n}" for n in range(3 * EACH))), ANN, GIVER)

    assert uris.has(f"x:{EACH - 1}", ANN)
    assert not uris.has(f"x:{EACH}", ANN)


def test_session_that_gave_a_uri_last_is_known_to_who_got_it_as_long_as_it_is_there():
    uris, first, last = GivenUris(), session(), session()
    uris.note(links("x:1"), ANN, first)
    uris.note(links("x:1"), ANN, last)
    found = [uris.giver("x:1", each) for each in (ANN, BOB)]
    assert found == [last, None]
    del found, last

    assert uris.giver("x:1", ANN) is None
    assert uris.has("x:1", ANN)


ODD = st.recursive(
    st.none() | st.integers() | st.sampled_from(["resource_link", "resource", "x:1", "x" * 3000]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["content", "messages", "result", "type", "uri", "resource"]), inner)
    ),
)


@given(st.dictionaries(st.sampled_from(["content", "messages", "result"]), ODD))
def test_any_answer_is_taken(answer: dict[str, object]):
    uris = GivenUris()
    uris.note(answer, ANN, GIVER)

    assert not uris.has("x" * 3000, ANN)
    assert not uris.has("x:1", BOB)


def test_part_of_what_was_given_that_a_query_names_is_given_with_it():
    """Where another gateway is the server, its large results are read like that."""
    uris, giver = GivenUris(), session()
    uris.note(links("x:1", "x:2?whole"), ANN, giver)

    assert [uris.has(uri, ANN) for uri in ("x:1?lines=2", "x:2?whole", "x:2", "x:3?lines=2")] == [
        True,
        True,
        False,
        False,
    ]
    assert [uris.giver("x:1?lines=2", each) for each in (ANN, BOB)] == [giver, None]


@pytest.mark.parametrize(
    "answer",
    [
        {"content": [{"type": "resource_link", "uri": "x:1"}]},
        {"content": [{"type": "resource", "resource": {"uri": "x:1", "text": "t"}}]},
        {"messages": [{"role": "user", "content": {"type": "resource_link", "uri": "x:1"}}]},
        {"result": {"content": [{"type": "resource_link", "uri": "x:1"}]}},
    ],
    ids=["call", "embedded", "prompt", "task"],
)
def test_uri_is_found_wherever_an_answer_links_to_it(answer: dict[str, object]):
    uris = GivenUris()
    uris.note(answer, ANN, GIVER)

    assert uris.has("x:1", ANN)
    assert uris.has("x:1?part=2", ANN)
    assert not uris.has("x:1", BOB)
