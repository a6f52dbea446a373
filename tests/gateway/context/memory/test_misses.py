"""What is kept of the last conversations' messages, for the operator to recognize them by."""

from typing import Any

import pytest

from gateway.context.memory import Miss, Misses
from tests.cases import each_of

ASKED = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "yes"},
    {"role": "user", "content": "second"},
    {"role": "assistant", "content": "no"},
    {"role": "tool", "tool_call_id": "c", "content": "a result"},
]


@pytest.mark.parametrize(
    ("messages", "text"), [(ASKED, "second"), (ASKED[:2], "first"), (ASKED[:1], None), ([ASKED[5]], None)]
)
def test_last_user_message_is_found_whatever_follows_it(messages: list[dict[str, str]], text: str | None) -> None:
    misses = Misses(10_000)
    misses.note(7, "alice", b"root", messages, 0)

    assert misses.last_user_text(7) == text
    assert misses.last_user_text(8) is None


def test_conversation_whose_messages_were_dropped_has_no_text() -> None:
    misses = Misses(2000)
    for number in range(10):
        misses.note(number, "alice", b"root", ASKED[:2], 0)

    assert [misses.last_user_text(number) for number in (0, 9)] == [None, "first"]


def explained(*kept: list[dict[str, str]], asked: list[dict[str, str]]) -> tuple[str, int | None, str, str]:
    misses = Misses(100_000)
    for number, messages in enumerate(kept):
        misses.note(number, "alice", b"root", messages, 10)
    miss = misses.explain("alice", b"root", asked)
    return miss.reason, miss.message, miss.was, miss.now


def talk(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def test_short_answer_that_another_conversation_has_too_does_not_make_that_one_the_earlier() -> None:
    sea = talk("Describe the sea.", "No.", "And bye.", "Bye.")
    hill = talk("Describe a hill.", "It is high.", "More.", "It is green.")

    found = explained(hill, sea, asked=talk("Describe a hill.", "No.", "More.", "It is green.", "And?"))

    assert found == ("client_changed", 1, "It is high.", "No.")
    assert explained(hill, sea, asked=talk("Describe a hill.", "No.", "More."))[0] == "not_seen_before"


def test_system_message_that_was_put_in_front_is_the_change() -> None:
    earlier = talk("first", "yes", "second", "no")

    assert explained(earlier, asked=[ASKED[0], *earlier, ASKED[1]]) == ("client_changed", 0, "", "be kind")
    assert explained([ASKED[0], *earlier], asked=[*earlier, ASKED[1]])[:2] == ("client_changed", 0)


def test_long_texts_count_towards_the_bound() -> None:
    misses = Misses(3000)
    for number, size in ((1, 10), (2, 2000), (3, 5000)):
        misses.note(number, "alice", b"root", [{"role": "user", "content": "x" * size}], 0)
    assert [misses.last_user_text(number) for number in (1, 2, 3)] == ["x" * 10, "x" * 2000, None]

    misses.note(4, "alice", b"root", [{"role": "user", "content": "y" * 1000}], 0)
    assert [misses.last_user_text(number) for number in (1, 2, 4)] == [None, None, "y" * 1000]


def test_conversations_are_kept_up_to_the_last_byte() -> None:
    """Each message counts 300 characters besides its own."""
    misses = Misses(1000)
    for number in range(3):
        misses.note(number, "alice", b"root", [{"role": "user", "content": "x" * 200}], 0)
    assert [misses.last_user_text(number) for number in range(3)] == [None, "x" * 200, "x" * 200]

    misses.note(3, "alice", b"root", [{"role": "user", "content": "y" * 701}], 0)
    assert [misses.last_user_text(number) for number in range(4)] == [None, "x" * 200, "x" * 200, None]
    misses.note(4, "alice", b"root", [{"role": "user", "content": "y" * 700}], 0)
    assert [misses.last_user_text(number) for number in range(5)] == [None, None, None, None, "y" * 700]


def test_messages_without_content_count_too() -> None:
    misses = Misses(600)
    for number in range(3):
        misses.note(number, "alice", b"root", [{"role": "assistant", "content": None}], 0)
    misses.note(1, "alice", b"root", [{"role": "user", "content": ""}], 0)
    misses.note(3, "alice", b"root", [{"role": "user", "content": ""}], 0)

    assert [misses.last_user_text(number) for number in (1, 3)] == ["", ""]


def test_conversation_that_goes_on_is_kept_once_and_as_the_latest() -> None:
    misses = Misses(1000)
    for number, text in ((0, "a"), (1, "b"), (0, "c"), (2, "d"), (0, "e"), (0, "f"), (0, "g")):
        misses.note(number, "alice", b"root", [{"role": "user", "content": text}], 0)
    assert [misses.last_user_text(number) for number in range(3)] == ["g", "b", "d"]

    misses.note(3, "alice", b"root", [{"role": "user", "content": "h"}], 0)
    assert [misses.last_user_text(number) for number in range(4)] == ["g", None, "d", "h"]

    misses.note(0, "alice", b"root", [{"role": "user", "content": "x" * 2000}], 0)
    assert misses.last_user_text(0) is None


EARLIER = talk("first", "yes", "second", "no")


def miss(asked: list[dict[str, Any]], *, owner: str = "alice", root: bytes = b"root", was: Any = EARLIER) -> Miss:
    misses = Misses(100_000)
    misses.note(1, "alice", b"root", was, 10)
    return misses.explain(owner, root, asked)


def test_first_message_that_differs_is_named_with_what_stands_around_the_difference() -> None:
    long = "a" * 90
    asked = talk("first", "yes", f"{long}x{long}", "no", "third")
    was = talk("first", "yes", f"{long}y{long}", "no")

    assert miss(asked, was=was) == Miss("client_changed", 10, 2, 90, f"{'a' * 40}y{'a' * 39}", f"{'a' * 40}x{'a' * 39}")
    assert miss(talk("First", "yes")) == Miss("client_changed", 10, 0, 0, "first", "First")


@each_of(
    ("asked", "owner", "root", "found"),
    [
        ([*EARLIER, ASKED[1]], "alice", b"root", Miss("not_seen_before", 10)),
        ([*EARLIER, ASKED[1]], "alice", b"other", Miss("options_changed", 10)),
        (EARLIER[:2], "alice", b"other", Miss("options_changed", 10)),
        ([*EARLIER, ASKED[1]], "bob", b"root", Miss("not_seen_before")),
        (EARLIER[:1], "alice", b"root", Miss("not_seen_before")),
        (talk("other", "maybe"), "alice", b"root", Miss("not_seen_before")),
        ([], "alice", b"root", Miss("not_seen_before")),
        ([{"role": "system", "content": "x" * 90}, *EARLIER], "alice", b"root", None),
    ],
)
def test_miss_says_why_nothing_was_recalled(
    asked: list[dict[str, Any]], owner: str, root: bytes, found: Miss | None
) -> None:
    assert miss(asked, owner=owner, root=root) == (found or Miss("client_changed", 10, 0, 0, "", "x" * 40))


def test_message_of_another_role_differs_from_its_first_character_that_does() -> None:
    asked = [*EARLIER[:2], {"role": "tool", "content": "second"}, *EARLIER[3:]]

    assert miss(asked) == Miss("client_changed", 10, 2, 6, "second", "second")


def calling(content: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": "c", "function": {"name": name, "arguments": arguments}}],
    }


def test_calls_of_an_answer_are_compared_with_its_text() -> None:
    was = [*talk("first"), calling(" Yes. ", "paint", '{"of": 1}')]

    assert miss([was[0], calling("Yes.", "paint", '{"of": 1}')], was=was).reason == "not_seen_before"
    assert miss([was[0], calling("Yes.", "paint", '{"of": 2}')], was=was) == Miss(
        "client_changed", 10, 1, 18, 'Yes.\npaint {"of": 1}', 'Yes.\npaint {"of": 2}'
    )
    for other in (calling("Yes.", "say", "{}"), calling("No.", "paint", "{}"), {"role": "user", "content": " Yes. "}):
        assert miss([was[0], other], was=was) == Miss("not_seen_before")


def test_conversation_that_is_most_alike_is_the_earlier_and_of_several_the_latest() -> None:
    misses = Misses(100_000)
    for number, last in enumerate(("one", "two", "two", "six")):
        misses.note(number, "alice", b"root", talk("first", "yes", last), number)

    assert misses.explain("alice", b"root", talk("first", "yes", "two")).held == 2
    assert misses.explain("alice", b"root", talk("first", "yes", "ten")).held == 3
    assert misses.explain("alice", b"root", talk("first", "yes", "one")).held == 0


def test_same_system_message_makes_a_conversation_more_alike() -> None:
    systems = [{"role": "system", "content": text} for text in ("be kind", "be brief")]
    misses = Misses(100_000)
    for number, system in enumerate(systems):
        misses.note(number, "alice", b"root", [system, *EARLIER], number)

    found = [misses.explain("alice", b"root", [system, *EARLIER]).held for system in systems]
    assert found == [0, 1]
    assert misses.explain("alice", b"root", [{"role": "system", "content": "be"}, *EARLIER]) == Miss(
        "client_changed", 1, 0, 2, "be brief", "be"
    )


@pytest.mark.parametrize(("later", "found"), [(15, 7), (16, 0)])
def test_request_is_compared_with_the_last_16_conversations_of_its_principal(later: int, found: int) -> None:
    misses = Misses(100_000)
    misses.note(0, "alice", b"root", EARLIER, 7)
    for number in range(1, later + 1):
        misses.note(number, "alice", b"root", talk("other", "maybe"), 0)
        misses.note(100 + number, "bob", b"root", EARLIER, 9)

    assert misses.explain("alice", b"root", [*EARLIER, ASKED[1]]).held == found
