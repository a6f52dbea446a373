"""Engines that a test scripts, behind an address that can be moved from one to the other."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream

from gateway.engine.interface import Engine, Generated, GenerateRequest, GenerationEnd, GenerationEvent
from leaf_sdk.vocab import TokenMap

_LATEST = ":latest"
"""What an alias of a model ends with."""
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n"


async def collect(engine: Engine, request: GenerateRequest) -> tuple[list[int], GenerationEnd]:
    """Generate; return all ids and the end, which must come last."""
    ids: list[int] = []
    end: GenerationEvent | None = None
    async with engine.generate(request) as events:
        async for event in events:
            if isinstance(event, Generated):
                ids += event.ids
            end = event
    assert isinstance(end, GenerationEnd)
    return ids, end


def marker_of(start: str) -> str:
    """What llama.cpp's server draws at random at a start, from the name of the start."""
    return f"<__media_{start:A>32}__>"


@dataclass
class FakeEngine:
    """Answers as a llama.cpp server does, from a map; remembers what it was asked, connection by connection."""

    token_map: TokenMap
    model: str = "model"
    marker: str | None = marker_of("1")
    asked: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Number of the connection, path."""
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Of the generations."""
    slots: int = 2
    _connections: int = 0

    def paths(self) -> list[str]:
        return [path for _, path in self.asked]

    async def serve(self, stream: SocketStream) -> None:
        number: int | None = None
        held = b""
        async with stream:
            while True:
                while b"\r\n\r\n" not in held:
                    try:
                        held += await stream.receive()
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        return
                head, _, held = held.partition(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
                length = int(fields.get(b"content-length", 0))
                while len(held) < length:
                    held += await stream.receive()
                body, held = held[:length], held[length:]
                path = head.split(b" ")[1].decode()
                if number is None:
                    # The first questions to an address, which begin with its health, have a connection of their own.
                    self._connections += path != "/health"
                    number = 0 if path == "/health" else self._connections
                self.asked.append((number, path))
                await stream.send(self._answer(path, json.loads(body) if body else {}))
                if path == "/completion":
                    # As llama.cpp's server does behind each stream, whatever its head says.
                    return

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path == "/completion":
            return self._generate(asked)
        pages: dict[str, Any] = {
            "/health": lambda: {"status": "ok"},
            "/props": lambda: {
                "default_generation_settings": {"n_ctx": 4096},
                "total_slots": self.slots,
                "chat_template": "{{ messages }}",
                **({"media_marker": self.marker} if self.marker else {}),
            },
            "/v1/models": lambda: {"data": [{"id": self.model, "meta": {"n_vocab": len(self.token_map)}}]},
            "/slots": lambda: [{"id": n, "is_processing": False} for n in range(self.slots)],
            "/tokenize": lambda: {
                "tokens": self._tokens(asked["content"], specials=bool(asked.get("parse_special", True)))
            },
        }
        if path not in pages:
            return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        text = json.dumps(pages[path]()).encode()
        return (HEAD.format(kind="application/json") + f"content-length: {len(text)}\r\n\r\n").encode() + text

    def _tokens(self, content: str | list[str | int], *, specials: bool) -> list[int]:
        """A list holds texts, and numbers that are passed through."""
        parts = content if isinstance(content, list) else [content]
        given = ([part] if isinstance(part, int) else self.token_map.encode(part, specials=specials) for part in parts)
        return [token for ids in given for token in ids]

    def _generate(self, asked: dict[str, Any]) -> bytes:
        self.prompts.append(asked["prompt"])
        self.bodies.append(asked)
        messages = [
            {"content": "a", "tokens": [5], "stop": False, "tokens_predicted": 1},
            {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "tokens_predicted": 1, "id_slot": 0},
        ]
        events = "".join(f"data: {json.dumps(message)}\n\n" for message in messages).encode()
        head = (HEAD.format(kind="text/event-stream") + "transfer-encoding: chunked\r\n\r\n").encode()
        return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(events), events)


@dataclass
class FakeRouter:
    """Answers as a llama.cpp server in router mode does (tools/server/server-models.cpp): what names a model is passed
    on to the model's process, and the connection ends with the answer."""

    processes: dict[str, FakeEngine]
    in_use: list[str] = field(default_factory=list[str])
    """The models whose processes run."""
    asked: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    """Path, and the model that was named."""
    may_end: bool = True
    """Whether each request said that its connection will not be used again."""

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            head, body = b"", b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            head, _, body = head.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            while len(body) < int(fields.get(b"content-length", 0)):
                body += await stream.receive()
            self.may_end &= fields.get(b"connection") == b"close"
            method, target = head.split(b" ")[:2]
            path = urlsplit(target.decode())
            asked = json.loads(body) if body else {}
            named = dict(parse_qsl(path.query)) if method == b"GET" else asked
            answer = self._answer(path.path, named.get("model"), asked)
            await stream.send(answer.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))

    def _answer(self, path: str, model: str | None, asked: dict[str, Any]) -> bytes:
        self.asked.append((path, model))
        if path in ("/health", "/v1/models") or (path == "/props" and model is None):
            return answered(self._own(path))
        name = (model or "").removesuffix(_LATEST)
        if name not in self.processes:
            why = "model name is missing from the request" if model is None else f"model '{model}' not found"
            error = {"code": 400, "message": why, "type": "invalid_request_error"}
            return answered({"error": error}, "400 Bad Request")
        return self.processes[name]._answer(path, asked)

    def _own(self, path: str) -> dict[str, Any]:
        if path == "/health":
            return {"status": "ok"}
        if path == "/props":
            settings = {"params": None, "n_ctx": 0}
            return {"role": "router", "model_path": "none", "default_generation_settings": settings}
        return {
            "data": [
                {
                    "id": name,
                    "aliases": [name + _LATEST],
                    "status": {"value": "loaded" if name in self.in_use else "unloaded"},
                    **({"meta": {"n_vocab": len(process.token_map)}} if name in self.in_use else {}),
                }
                for name, process in self.processes.items()
            ]
        }


@dataclass
class FakeSwap(FakeRouter):
    """Answers as llama-swap does (internal/server): what has a model in its path goes to the process of that model."""

    def _answer(self, path: str, model: str | None, asked: dict[str, Any]) -> bytes:
        before, _, of_model = path.partition("/upstream/")
        name = next((name for name in self.processes if of_model.startswith(f"{name}/")), None)
        self.asked.append((path, name))
        if name is None:
            return answered({}, "200 OK" if path == "/health" else "404 Not Found")
        assert not before
        return self.processes[name]._answer(of_model.removeprefix(name), asked)


def answered(value: dict[str, Any], status: str = "200 OK") -> bytes:
    """An answer in JSON."""
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Address:
    """One address and what answers behind it; moving it cuts what is connected, as a forwarder does."""

    url: str
    engine: FakeEngine | FakeRouter
    _streams: list[SocketStream] = field(default_factory=list[SocketStream])

    async def cut(self) -> None:
        """End every connection from the other side."""
        streams, self._streams = self._streams, []
        for stream in streams:
            await stream.aclose()

    async def move(self, engine: FakeEngine | FakeRouter) -> None:
        """Have another engine answer."""
        self.engine = engine
        await self.cut()

    async def serve(self, stream: SocketStream) -> None:
        self._streams.append(stream)
        await self.engine.serve(stream)


@asynccontextmanager
async def listening(serve: Callable[[SocketStream], Awaitable[None]]) -> AsyncGenerator[str]:
    """A server of connections, and its URL; one on which nothing is asked, or that is lost, is its client's affair."""

    async def served(stream: SocketStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await serve(stream)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, served)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        # A connection that is just being accepted is not broken off in the middle of that.
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def address_of(engine: FakeEngine | FakeRouter) -> AsyncGenerator[Address]:
    """Let it be reached."""

    async def serve(stream: SocketStream) -> None:
        await address.serve(stream)

    async with listening(serve) as url:
        address = Address(url, engine)
        yield address


class Watch:
    """Tells when the route opens and closes."""

    def __init__(self) -> None:
        self.states: list[bool] = []
        self._changed = anyio.Event()

    def engine_up(self, up: bool, reason: str) -> None:
        self.states.append(up)
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, count: int) -> None:
        with anyio.fail_after(60):
            while len(self.states) < count:
                await self._changed.wait()
