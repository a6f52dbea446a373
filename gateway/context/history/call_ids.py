"""The ids of calls: the gateway's own, which clients and the memory know, for those that the model wrote.

Models number their calls from 0 in every turn, or write ids that other APIs refuse (`functions.now:0`). A client gets
an id that is unique in its conversation and has only letters, digits and `_`; the chat template gets the model's.
"""

from collections.abc import Mapping, Sequence

from gateway.context.memory import Turn
from gateway.engine.interface import Message
from gateway.toolcalls.stream.call_events import new_call_ids


class CallIds:
    """The ids of one turn that the model writes."""

    def __init__(self) -> None:
        self._new = new_call_ids()
        self._ours: dict[str, str] = {}
        """The gateway's own ids, by themselves and by the model's."""

    def make(self) -> str:
        """Make an id for a call to which the model gives none."""
        made = self._new()
        self._ours[made] = made
        return made

    def ours(self, call_id: str) -> str:
        """Return the gateway's own id for a call with this id, always the same one."""
        if call_id not in self._ours:
            self._ours[call_id] = self.make()
        return self._ours[call_id]


def with_model_ids(messages: Sequence[Message], turns: Sequence[Turn]) -> list[Message]:
    """The messages of a conversation with the ids of calls as the model wrote them, where `turns` remember these."""
    known: dict[str, str] = {}
    for turn in turns:
        if turn.lived is not None and turn.lived.turn is not None:
            ours = (call.id for call in turn.lived.turn.calls)
            known |= {own: model for own, model in zip(ours, turn.lived.turn.model_ids, strict=False) if own != model}
    return [_renamed(message, known) for message in messages] if known else [*messages]


def _renamed(message: Message, known: Mapping[str, str]) -> Message:
    changed = dict(message)
    if calls := message.get("tool_calls"):
        changed["tool_calls"] = [
            {**call, "id": known[call["id"]]} if call.get("id") in known else call for call in calls
        ]
    answered = message.get("tool_call_id")
    if isinstance(answered, str):
        changed["tool_call_id"] = known.get(answered, answered)
    return changed
