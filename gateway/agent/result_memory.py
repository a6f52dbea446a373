"""Results of calls that the gateway ran, kept for the next request of the same conversation.

A client of OpenAI's API sends its whole history, but it has no message for a call that it did not run. What is kept
here by call id fills that gap, so that the model sees the result again. Bounded: a conversation that comes back too
late does without. It holds texts, or what makes one when it is needed, and knows no engine.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.engine.interface import Message

_OURS = re.compile("call_[0-9a-f]{24}")
_KEPT = 1024
"""Results."""
_LONGEST = 16_000
"""Characters of one result."""


class ResultMemory:
    """The last results, by call id."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str | Callable[[], str]] = OrderedDict()

    def keep(self, call_id: str, said: str | Callable[[], str]) -> None:
        """Remember a result, or what makes it; the oldest is forgotten when there are too many.

        Only ids of our own making count: nobody can guess them. One that a model chose (`functions.get_time:0`) is the
        same in other people's conversations.
        """
        if _OURS.fullmatch(call_id) is None:
            return
        self._texts[call_id] = said[:_LONGEST] if isinstance(said, str) else said
        self._texts.move_to_end(call_id)
        if len(self._texts) > _KEPT:
            self._texts.popitem(last=False)

    def filled(self, messages: Sequence[Message]) -> list[Message]:
        """The history with a `tool` message for every call that has none and whose result is known.

        An assistant's message that holds only such calls is the whole answer of a gateway: calls, results, then words.
        It becomes those three, in the order in which the model lived them.
        """
        filled: list[Message] = []
        for n, message in enumerate(messages):
            calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
            answered = _answered(messages[n + 1 :]) if calls else set[str]()
            known = [self._tool_message(call) for call in calls if call.get("id") not in answered]
            results = [result for result in known if result is not None]
            if results and not answered and message["content"]:
                words = {"role": message["role"], "content": message["content"]}
                filled += [{**message, "content": ""}, *results, words]
            else:
                filled += [message, *results]
        return filled

    def _tool_message(self, call: Mapping[str, Any]) -> Message | None:
        call_id = str(call.get("id"))
        said = self._texts.get(call_id)
        if said is None:
            return None
        text = said if isinstance(said, str) else said()[:_LONGEST]
        return {"role": "tool", "tool_call_id": call_id, "name": call["function"]["name"], "content": text}


def _answered(following: Sequence[Message]) -> set[str]:
    """Ids of the calls that the messages right after an assistant's answer."""
    ids: set[str] = set()
    for message in following:
        if message["role"] != "tool":
            break
        ids.add(str(message.get("tool_call_id")))
    return ids
