"""Answers with fields that no schema knows; tells what it was asked, and who it is."""

import os
from typing import Any

from transport import TOOL, answer, note, serve

STRANGE = {**TOOL, "title": None, "x-vendor": {"deep": None}, "execution": {"taskSupport": "forbidden"}}


def on_call(request: dict[str, Any]) -> None:
    params = request["params"]
    answer(
        request,
        {
            "content": [
                {"type": "text", "text": "hello", "x-vendor": 1, "_meta": {"com.example/k": {"a": None}, "n": None}},
                {"type": "hologram", "beams": [1, None]},
            ],
            "structuredContent": {"pid": os.getpid(), "params": params, "secret": os.environ.get("OUR_SECRET")},
            "x-result": None,
            "_meta": {"com.example/r": None},
        },
    )


note(f"pid {os.getpid()}")
serve(on_call, tools=[STRANGE])
