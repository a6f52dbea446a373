"""The chat template gets the model's own ids of calls, and otherwise the messages as they are."""

from array import array

from gateway.context.history.template_messages import with_model_ids
from gateway.context.memory import LivedTurn, Turn
from gateway.context.memory.remembered import Lived
from gateway.toolcalls.stream.output_events import CallClosed


def call(**more: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": "now", "arguments": "{}"}, **more}


def test_only_calls_whose_ids_are_known_get_the_models_and_none_gets_an_id_that_it_had_not() -> None:
    turn = LivedTurn((CallClosed(0, "call_1", "now", "{}", ()),), model_ids=("functions.now:0",))
    known = Turn({"role": "assistant"}, Lived({"role": "assistant", "content": ""}, array("I"), turn))
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call(id="call_1"), call(id="call_2"), call()]},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        {"role": "tool", "content": "2"},
    ]

    calls, first, second = with_model_ids(messages, [known])

    assert calls["tool_calls"] == [call(id="functions.now:0"), call(id="call_2"), call()]
    assert first["tool_call_id"] == "functions.now:0"
    assert second == messages[2]
    assert with_model_ids(messages, []) == messages
