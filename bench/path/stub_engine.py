"""A STUB of a llama.cpp server, for load: it generates nothing, it replays recorded ids at a rate.

`python -m bench.path.stub_engine PORT`. It answers what the gateway asks of an engine (its facts, its tokenizer, its
template) from SmolLM2's own map, so that the map can be proven. A prompt of two ids names the stream and the tokens per
second; at every step each open stream of a rate gets one token, as in an engine that batches. `/stub/sent` tells when
each id was sent, on the clock that all processes of a machine share.
"""

import asyncio
import json
import secrets
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import uvloop

from bench.path.stub_events import TURNS, Rendered, rendered
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk import TokenMap, open_map

if TYPE_CHECKING:
    from collections.abc import Callable

SLOTS: Final = 256
CONTEXT: Final = 8192
_RATE: Final = 1000
"""Tokens per second for a prompt that names none."""
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp stub\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"
)


class _Play:
    """One stream that is being sent."""

    def __init__(self, out: asyncio.Transport, source: Rendered, most: int, sent: list[float]) -> None:
        self._out = out
        self._source = source
        self._pieces = iter(source.pieces)
        self._most = most
        self._sent = sent
        self._count = 0

    def step(self) -> bool:
        """Send the next token; returns false if that was the last, or nobody listens any more."""
        if self._out.is_closing():
            return False
        piece = next(self._pieces)
        self._count += piece.ids
        data = piece.data if self._count < self._most else piece.data + self._source.end(self._count)
        self._sent += [perf_counter()] * piece.ids
        self._out.write(data)
        return self._count < self._most


class _Beat:
    """The steps of one rate: one timer for any number of streams."""

    def __init__(self, rate: int) -> None:
        self._period = 1 / rate
        self._open: list[_Play] = []
        self._next = 0.0
        self._loop = asyncio.get_running_loop()

    def join(self, play: _Play) -> None:
        """Include a stream from the next step on."""
        if not self._open:
            self._next = self._loop.time()
            self._plan()
        self._open.append(play)

    def _plan(self) -> None:
        # From the previous step, not from now: a late step does not delay the others.
        self._next += self._period
        self._loop.call_at(self._next, self._step)

    def _step(self) -> None:
        self._open = [play for play in self._open if play.step()]
        if self._open:
            self._plan()


class Stub:
    """What all connections share."""

    def __init__(self, token_map: TokenMap) -> None:
        self._map = token_map
        self._marker = f"<__media_{secrets.token_hex(16)}__>"
        self._beats: dict[int, _Beat] = {}
        self._sent: dict[int, list[float]] = {}
        self._pages: dict[str, Callable[[dict[str, Any]], object]] = {
            "/health": lambda _: {"status": "ok"},
            "/props": lambda _: self._props(),
            "/v1/models": lambda _: {"data": [{"id": "stub", "meta": {"n_vocab": len(token_map)}}]},
            "/tokenize": self._tokenize,
            "/detokenize": lambda asked: {"content": token_map.decode(asked["tokens"])},
            "/apply-template": self._template,
            "/stub/sent": lambda _: self._told(),
        }

    def answer(self, path: str, asked: dict[str, Any], out: asyncio.Transport) -> None:
        """Answer one request."""
        if path in ("/completion", "/v1/completions"):
            self._play(asked, out, openai=path != "/completion")
            return
        page = self._pages.get(path)
        body = json.dumps(page(asked) if page else {"error": {"message": "no such path in this stub"}}).encode()
        status = b"200 OK" if page else b"404 Not Found"
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        out.write(head + body)

    def _play(self, asked: dict[str, Any], out: asyncio.Transport, *, openai: bool) -> None:
        prompt: list[int] = asked["prompt"]
        number, rate = (prompt[0], prompt[1]) if len(prompt) == 2 else (0, _RATE)
        most = asked["max_tokens"] if openai else asked["n_predict"]
        sent = self._sent.setdefault(number, [])
        sent.clear()
        play = _Play(out, rendered(number % TURNS, self._map, openai=openai), most, sent)
        out.write(_HEAD)
        # The first token is sent at once, so that the time to it is that of the path alone.
        if play.step():
            beat = self._beats.get(rate)
            if beat is None:
                beat = self._beats[rate] = _Beat(rate)
            beat.join(play)

    def _told(self) -> dict[str, list[float]]:
        told = {str(number): times for number, times in self._sent.items()}
        self._sent = {}
        return told

    def _props(self) -> dict[str, Any]:
        return {
            "default_generation_settings": {"n_ctx": CONTEXT},
            "total_slots": SLOTS,
            "model_path": str(packaged_model()),
            "chat_template": "{{ messages }}",
            # Drawn at each start, as llama.cpp does: it shows that a new connection is to the same engine.
            "media_marker": self._marker,
            "chat_template_caps": {"supports_tools": False},
        }

    def _tokenize(self, asked: dict[str, Any]) -> dict[str, Any]:
        content: str | list[str | int] = asked["content"]
        specials = bool(asked.get("parse_special", True))
        # A list holds texts, and numbers that are passed through.
        parts = content if isinstance(content, list) else [content]
        given = ([part] if isinstance(part, int) else self._map.encode(part, specials=specials) for part in parts)
        return {"tokens": [token for ids in given for token in ids]}

    def _template(self, asked: dict[str, Any]) -> dict[str, str]:
        turns = (f"<|im_start|>{each['role']}\n{each.get('content') or ''}<|im_end|>\n" for each in asked["messages"])
        return {"prompt": "".join(turns) + "<|im_start|>assistant\n"}


class _Connection(asyncio.Protocol):
    """A connection with as much of HTTP/1.1 as our own clients use."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._out = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].decode("latin-1")
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
            whole = end + 4 + int(fields.get("content-length", 0))
            if len(self._held) < whole:
                return
            body, self._held = self._held[end + 4 : whole], self._held[whole:]
            self._stub.answer(head.split(" ", 2)[1], json.loads(body) if body else {}, self._out)


async def _serve(port: int) -> None:
    token_map = open_map(packaged_model())
    for turn in range(TURNS):
        for openai in (False, True):
            rendered(turn, token_map, openai=openai)
    stub = Stub(token_map)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(stub), "127.0.0.1", port, backlog=512)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
