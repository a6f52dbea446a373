"""A client says only so much of itself: what it can be asked for, and where its roots are."""

import pytest

from gateway.protocol.eras import excess_of_answer, excess_of_capabilities

LARGEST = {
    "entries": {"experimental": {"a": [{}] * 254}},
    "text": {"experimental": {"a": "x" * (16_384 - len("experimental") - 1)}},
    "keys": {"x" * 16_384: {}},
}


@pytest.mark.parametrize("kind", LARGEST)
def test_largest_capabilities_pass_and_one_more_entry_or_character_does_not(kind):
    assert excess_of_capabilities(LARGEST[kind]) is None
    why = excess_of_capabilities({**LARGEST[kind], "y": {}})
    assert (
        why
        == {
            "entries": "they have more than 256 entries",
            "text": "their text has more than 16384 characters",
            "keys": "their text has more than 16384 characters",
        }[kind]
    )


@pytest.mark.parametrize("capabilities", [{}, {"roots": {"listChanged": True}, "elicitation": {"form": {}}}, {"a": 1}])
def test_capabilities_of_real_clients_pass(capabilities):
    assert excess_of_capabilities(capabilities) is None


def test_capabilities_nested_very_deep_are_counted():
    capabilities: dict[str, object] = {}
    for _ in range(100_000):
        capabilities = {"a": capabilities}

    assert excess_of_capabilities(capabilities) == "they have more than 256 entries"


@pytest.mark.parametrize(
    ("method", "result", "why"),
    [
        ("roots/list", {"roots": [{}] * 1000}, None),
        ("roots/list", {"roots": [{}] * 1001}, "the client has 1001 roots: at most 1000 are passed on"),
        ("roots/list", {"roots": "x" * 1001}, None),
        ("elicitation/create", {"roots": [{}] * 1001}, None),
    ],
)
def test_answer_with_more_roots_than_are_passed_on(method, result, why):
    assert excess_of_answer(method, result) == why
