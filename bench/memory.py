"""What the memory of conversations costs: bytes per answer, and time to find a history again and to place its turns.

`python -m bench.memory` prints the figures that docs/adr states; it writes no file. Bytes are tracemalloc's, times are
of this process alone, the least of five. Nothing is rendered and no engine runs: ChatML replaces the template's text.
"""

import json
import time
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

from gateway.context.memory import (
    Call,
    ConversationMemory,
    History,
    Lived,
    LivedTurn,
    Remembered,
    Shown,
    root_digest,
)
from gateway.engine.rendering.foreign_text import ForeignText, MarkerGuard, Signs, restored, shown_once
from gateway.engine.rendering.prompt_ids import Known, turn_regions
from gateway.engine.rendering.scaffold import shape_of
from gateway.toolcalls.stream.output_events import CallClosed

ROOT = root_digest(b"key", "anybody")


def conversation(count: int, characters: int) -> list[dict[str, Any]]:
    """Return a client's loop: a question, and calls with their results, of so many messages and characters."""
    text = "x" * (characters // count)
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    while len(messages) < count:
        number = len(messages)
        function = {"name": "get_weather", "arguments": json.dumps({"city": text[:200], "days": number})}
        call = {"id": f"call_{number:024}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": text},
        ]
    return messages[:count]


def lived_answer(message: dict[str, Any], ids: int) -> tuple[Shown, tuple[Lived, ...]]:
    """Return an answer of one turn, as a generation notes it."""
    message = json.loads(json.dumps(message))
    calls = [Call(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
    closed = tuple(CallClosed(n, c.id, c.name, c.arguments, ()) for n, c in enumerate(calls))
    return Shown(message["content"], "", tuple(calls)), (Lived(message, array("I", range(ids)), LivedTurn(closed)),)


def remembered(messages: list[dict[str, Any]], ids: int) -> ConversationMemory:
    """Return a memory that holds each answer of a conversation."""
    memory, before = ConversationMemory(1 << 40), None
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            history = History(ROOT, messages[:place])
            shown, lived = lived_answer(message, ids)
            node = Remembered("anybody", before, place, shown, lived, 0, array("I", range(ids)), 0, 0, 0)
            memory.remember(node, history.with_answer(shown))
            before = node
    return memory


def least(action: Callable[[], object]) -> float:
    """Return the least milliseconds of CPU that an action takes."""
    spent: list[float] = []
    for _ in range(5):
        started = time.process_time()
        action()
        spent.append(time.process_time() - started)
    return min(spent) * 1000


def print_bytes() -> None:
    """Print what an answer takes, and the memory's own estimate of it."""
    words = {"role": "assistant", "content": "x" * 480}
    kinds = {"words": words, "Chinese": {**words, "content": "天" * 480}, "one call": conversation(3, 600)[1]}
    for name, message in kinds.items():
        for ids in (12, 120, 1200):
            history = History(ROOT, [{"role": "user", "content": "?"}])
            tracemalloc.start()
            memory = ConversationMemory(1 << 40)
            start = tracemalloc.get_traced_memory()[0]
            for number in range(500):
                told, lived = lived_answer({**message, "content": f"{message['content']}{number}"}, ids)
                node = Remembered("anybody", None, 1, told, lived, 0, array("I", range(ids)), 0, 0, 0)
                memory.remember(node, history.with_answer(told))
            taken = (tracemalloc.get_traced_memory()[0] - start) / 500
            tracemalloc.stop()
            print(f"{name:9} {ids:5} ids: {taken:7.0f} bytes an answer, counted as {memory.size / 500:7.0f}")


def print_lookups() -> None:
    """Print the time from messages to what is recalled of them."""
    for count, characters in ((200, 50_000), (200, 800_000), (2_000, 500_000), (9_999, 2_500_000)):
        messages = conversation(count, characters)
        memory = remembered(messages[:401], 60) if count > 400 else remembered(messages, 60)
        found = least(lambda: memory.recall("anybody", History(ROOT, messages), {}))  # noqa: B023 - called here
        shape = least(lambda: shape_of(messages, 1, tools=True))  # noqa: B023 - called here
        print(f"{count:6} messages, {characters:8} characters: recalled {found:8.2f} ms, shape {shape:7.2f} ms")


def print_places() -> None:
    """Print the time to find the turns of a conversation in its rendering."""
    for count in (201, 2_001, 9_999):
        messages = conversation(count, count * 250)
        foreign = ForeignText(Signs(MarkerGuard(["<|im_start|>", "<|im_end|>"])))
        shown = foreign.messages(messages, marked=True)
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}{_calls(m)}<|im_end|>\n" for m in shown)
        known = {n: _known(m) for n, m in enumerate(messages) if m["role"] == "assistant"}

        def place() -> int:
            whole = restored(text, foreign)  # noqa: B023 - called here
            marks = shown_once(whole, foreign) or []  # noqa: B023 - called here
            return len(turn_regions(whole, marks, foreign, messages, known, _read))  # noqa: B023 - called here

        assert place() == len(known)
        print(f"{count:6} messages: {len(known)} turns placed in {least(place):8.2f} ms")


def _calls(message: dict[str, Any]) -> str:
    return "".join(
        f'<tool_call>{{"name": "{c["function"]["name"]}", "arguments": {c["function"]["arguments"]}}}</tool_call>'
        for c in message.get("tool_calls") or ()
    )


def _known(message: dict[str, Any]) -> Known:
    (call,) = message["tool_calls"]
    value = json.loads(call["function"]["arguments"])
    text = f'<tool_call>{{"name":"get_weather","arguments":{json.dumps(value, separators=(",", ":"))}}}</tool_call>'
    return Known([1], text, (("get_weather", value),), "<|im_end|>")


def _read(text: str) -> list[tuple[str, object]]:
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    return [(call["name"], call["arguments"])]


if __name__ == "__main__":
    print_bytes()
    print_lookups()
    print_places()
