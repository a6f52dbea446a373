"""A call with {"wait": true} is answered when a call with {"release": true} comes; every other one at once."""

from typing import Any

from transport import answer, note, serve

WAITING: list[dict[str, Any]] = []


def on_call(request: dict[str, Any]) -> None:
    note("called")
    arguments = request["params"]["arguments"]
    if arguments.get("wait"):
        WAITING.append(request)
        return
    if arguments.get("release"):
        for waiting in WAITING:
            answer(waiting, {"content": [{"type": "text", "text": "released"}]})
    answer(request, {"content": []})


serve(on_call)
