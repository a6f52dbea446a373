"""What is kept of the last conversations' messages, for the operator to recognize them by."""

import pytest

from gateway.context.memory import Misses

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
