"""A summary in place of a conversation's earlier part: the message that stands for it, and where it is written.

A conversation that was compacted goes on behind its preamble and one message of the user's, which holds the summary and
the user's last words, so that what an API sends back needs nothing of what it replaces. Pure.
"""

from collections.abc import Sequence
from typing import Any, Final

from gateway.config.overrides import RESULT_TOOLS
from gateway.context.memory import FOUND_TOOLS, SUMMARY, KeptResult
from gateway.engine.interface import Message

_HEAD: Final = "The earlier part of this conversation was replaced by this summary of it:"
_LAST: Final = "The user's last message was:"
_READ, _SEARCH = RESULT_TOOLS
_KEPT: Final = (
    "These results were too long to show and are still kept whole. Read on in one by its handle with "
    f"{_READ}, or find words in it with {_SEARCH}:"
)
_MOST_KEPT: Final = 16
_LONGEST_SHAPE: Final = 120

INSTRUCTION: Final = (
    "Stop here and write a summary of this conversation. It will replace the conversation, so that you can go on "
    "without it. Say what the user wants, in the user's own words; what was done and found out, with names, paths, "
    "numbers and decisions that are still needed; and what has to be done next. Write only the summary, and call no "
    "tool."
)
"""What the model is told, unless the client has words of its own."""


def summary_text(summary: str, behind: str, kept: Sequence[KeptResult] = ()) -> str:
    """Return the text of the message that stands for the earlier part.

    Args:
        summary: the model's own words.
        behind: what is quoted behind the summary.
        kept: results in which the model can still read on, the latest last.
    """
    return _joined(_HEAD, summary, _named(kept), behind)


def _named(kept: Sequence[KeptResult]) -> str:
    if not kept:
        return ""
    lines = [f"- {each.handle}: {each.tokens:,} tokens of {each.tool}; {_short(each.shape)}" for each in kept]
    # A call with another handle is answered with all of them.
    left = len(lines) - _MOST_KEPT
    more = [f"- {left} older ones: a call with the handle 'list' names them"] if left > 0 else []
    return "\n".join((_KEPT, *lines[-_MOST_KEPT:], *more))


def _short(shape: str) -> str:
    return shape if len(shape) <= _LONGEST_SHAPE else f"{shape[:_LONGEST_SHAPE]}..."


def last_words(messages: Sequence[Message], most: int) -> str:
    """Return the user's last words, to be quoted behind a summary that covers them: `most` characters of each message.

    Words that a client sends beside results of calls do not count, except for the last: agents use them for reminders.
    """
    runs: list[tuple[str, list[str]]] = []
    before = ""
    for message in messages:
        if message["role"] == "user":
            runs = runs if before == "user" else [*runs[-2:], (before, [])]
            runs[-1][1].append(str(message["content"]))
        before = message["role"]
    asked = next((texts for after, texts in reversed(runs) if after != "tool"), list[str]())
    beside = runs[-1][1] if runs and runs[-1][0] == "tool" and before == "user" else []
    return _quoted([_beginning(text, most) for text in (*asked, *beside)])


def words_behind(rest: Sequence[Message]) -> str:
    """Return what is quoted of the messages behind the part that is summed up: all of it, as text."""
    said = [str(message["content"]) for message in rest if message["role"] == "user"]
    parts = [_told(message) for message in rest if message["role"] in ("assistant", "tool")]
    return _joined(*parts, _quoted(said))


def _told(message: Message) -> str:
    if message["role"] == "tool":
        return _joined("The result of the call:", str(message["content"]))
    functions = (call["function"] for call in message.get("tool_calls") or ())
    calls = (f"You called {each['name']} with {each['arguments']}" for each in functions)
    return _joined(str(message.get("content") or ""), *calls)


def _beginning(text: str, most: int) -> str:
    if text.startswith(_HEAD):
        # These words stand for an earlier part themselves.
        text = text.partition(f"{_LAST}\n\n")[2]
    return text if len(text) <= most else f"{text[:most]} [...]"


def _quoted(texts: Sequence[str]) -> str:
    said = _joined(*texts)
    return _joined(_LAST, said) if said else ""


def with_instruction(messages: Sequence[Message], words: str) -> list[Message]:
    """Return the messages that make the model write a summary of them."""
    if messages[-1]["role"] != "user":
        return [*messages, {"role": "user", "content": words}]
    return [*messages[:-1], {**messages[-1], "content": _joined(str(messages[-1]["content"]), words)}]


def after_summary(
    messages: Sequence[Message], text: str, found: Sequence[str] = (), system: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return what is left of the messages when a summary stands for them: the system's words, then the summary.

    Args:
        messages: the messages that it stands for.
        text: see `summary_text`.
        found: tools that the model had found, which are defined anew.
        system: words of the system's that are kept with the summary, in case its client has dropped them.
    """
    left = [dict(message) for message in messages if message["role"] in ("system", "developer")]
    known = {str(message["content"]) for message in left}
    left += [{"role": "system", "content": words} for words in system if words not in known]
    names: dict[str, Any] = {FOUND_TOOLS: tuple(found)} if found else {}
    # Whoever wrote it: by its beginning the message is known.
    told = text if text.startswith(_HEAD) else _joined(_HEAD, text)
    return [*left, {"role": "user", "content": told, SUMMARY: told, **names}]


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
