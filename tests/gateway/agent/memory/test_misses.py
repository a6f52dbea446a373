"""What is kept of the last conversations' messages, for the operator to recognize them by."""

import pytest

from gateway.agent.memory import Misses

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
