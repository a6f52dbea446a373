"""What the stub engine sends: recorded ids as a llama.cpp server's events, rendered once.

Turns a recorded stream into pieces, each an HTTP chunk of one event, in the form of `/completion` and in that of
`/v1/completions`. Where a token ends inside a character the server holds it back, and so do the pieces. A test compares
them with the packaged server. It sends nothing.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from bench.wire import sse
from bench.wire.streams import stream
from leaf_sdk import Detokenizer, TokenMap

RECORDED: Final = "prose"
TURNS: Final = 8
"""How many streams differ: each begins at another place in the recording, so that none can be taken for another."""
PROMPT_IDS: Final = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """One event as it is sent, and how many ids it completes."""

    data: bytes
    ids: int


@cache
def ids_of(number: int) -> tuple[int, ...]:
    """Return the 4,096 ids of the stream of this number."""
    ids = stream(RECORDED)
    at = number % TURNS * (len(ids) // TURNS)
    return ids[at:] + ids[:at]


@dataclass(frozen=True, slots=True)
class Rendered:
    """One stream in one form."""

    pieces: tuple[Piece, ...]
    openai: bool

    def end(self, count: int) -> bytes:
        """Return what follows the last id, and the end of the body."""
        data = sse.last_event(count) if self.openai else _event(_last_message(count))
        return chunk(data) + b"0\r\n\r\n"


@cache
def rendered(turn: int, token_map: TokenMap, *, openai: bool) -> Rendered:
    """Return the stream that begins at a turn, in OpenAI's form or the server's own."""
    detokenizer = Detokenizer(token_map)
    pieces: list[Piece] = []
    held = 0
    for number, token in enumerate(ids_of(turn), 1):
        text = detokenizer.feed([token])
        if not text and not openai:
            held += 1
            continue
        data = sse.event(_choice(text)) if openai else message_event(token, text, number)
        pieces.append(Piece(chunk(data), held + 1))
        held = 0
    return Rendered(tuple(pieces), openai)


def message_event(token: int, text: str, number: int) -> bytes:
    """Return the event of the `number`th id, as `/completion` sends it."""
    fields = {
        "index": 0,
        "content": text,
        "tokens": [token],
        "stop": False,
        "id_slot": -1,
        "tokens_predicted": number,
        "tokens_evaluated": PROMPT_IDS,
    }
    return _event(fields)


def chunk(data: bytes) -> bytes:
    """Return one chunk of a body of unknown length."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def _choice(text: str) -> dict[str, object]:
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": None}


def _last_message(count: int) -> dict[str, Any]:
    return {
        "index": 0,
        "content": "",
        "tokens": [],
        "id_slot": 0,
        "stop": True,
        "tokens_predicted": count,
        "tokens_evaluated": PROMPT_IDS,
        "generation_settings": {},
        "truncated": False,
        "stop_type": "limit",
        "stopping_word": "",
        "tokens_cached": PROMPT_IDS + count - 1,
        "timings": {"cache_n": 0, "prompt_n": PROMPT_IDS, "prompt_ms": 1.0, "predicted_n": count, "predicted_ms": 1.0},
    }


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
