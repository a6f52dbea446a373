"""A summary in place of a conversation's earlier part: the message that stands for it, and where it is written.

A conversation that was compacted goes on behind its preamble and one message of the user's, which holds the summary and
the user's last words, so that what an API sends back needs nothing of what it replaces. Pure.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from gateway.context.memory import FOUND_TOOLS
from gateway.engine.interface import Message

_HEAD: Final = "The earlier part of this conversation was replaced by this summary of it:"
_LAST: Final = "The user's last message was:"
_QUOTED: Final = 2_000
"""Most characters of the user's words that are repeated behind a summary that covers them."""

INSTRUCTION: Final = (
    "Stop here and write a summary of this conversation. It will replace the conversation, so that you can go on "
    "without it. Say what the user wants, in the user's own words; what was done and found out, with names, paths, "
    "numbers and decisions that are still needed; and what has to be done next. Write only the summary, and call no "
    "tool."
)
"""What the model is told, unless the client has words of its own."""


def summary_text(summary: str, question: str) -> str:
    """Return the text of the message that stands for the earlier part. `question`: the user's last words."""
    asked = (_LAST, question) if question else ()
    return "\n\n".join((_HEAD, summary, *asked))


def last_question(messages: Sequence[Message]) -> str:
    """Return the user's last words, if they are short enough to be repeated; "" where they are not."""
    said = next((str(each["content"]) for each in reversed(messages) if each["role"] == "user"), "")
    if said.startswith(_HEAD):
        # These words stand for an earlier part themselves.
        said = said.partition(f"{_LAST}\n\n")[2]
    return said if len(said) <= _QUOTED else ""


def with_instruction(messages: Sequence[Message], words: str) -> list[Message]:
    """Return the messages that make the model write a summary of them."""
    if messages[-1]["role"] != "user":
        return [*messages, {"role": "user", "content": words}]
    return [*messages[:-1], {**messages[-1], "content": _joined(str(messages[-1]["content"]), words)}]


def after_summary(messages: Sequence[Message], text: str, found: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return what is left of the messages when a summary stands for them: the system's words before all others.

    Args:
        messages: the messages that it stands for.
        text: see `summary_text`.
        found: tools that the model had found, which are defined anew.
    """
    first = takewhile(lambda each: each["role"] in ("system", "developer"), messages)
    names: dict[str, Any] = {FOUND_TOOLS: tuple(found)} if found else {}
    return [*map(dict, first), {"role": "user", "content": text, **names}]


def add_message(messages: list[dict[str, Any]], message: dict[str, Any]) -> bool:
    """Append a message; False: it was joined with the summary before it, since templates take turns."""
    if messages and message["role"] == "user" and is_summary(messages[-1]):
        messages[-1] = {**messages[-1], "content": _joined(messages[-1]["content"], message["content"])}
        return False
    messages.append(message)
    return True


def is_summary(message: Message) -> bool:
    """Whether a message stands for an earlier part."""
    return message["role"] == "user" and str(message["content"]).startswith(_HEAD)


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))
