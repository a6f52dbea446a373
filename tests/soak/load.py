"""Operations of every kind on one running gateway, each judged, and the memory that they leave."""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression
from typing import Any

import anyio
import httpx2

from tests.e2e.conftest import RunningGateway, running_gateway
from tests.e2e.faults.clients import HttpClient, http_client

FAULTY = Path(__file__).parents[1] / "e2e" / "faults" / "servers" / "faulty.py"
QUESTIONS = ("What is it like there?", "Say that in other words.", "Name three colours.", "Who was that?")
WRONG: tuple[tuple[str, bytes], ...] = (
    ("/v1/chat/completions", b"{"),
    ("/v1/chat/completions", b'{"messages": 7}'),
    ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": [8]}'),
    ("/v1/messages", b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": "many"}'),
    ("/v1/responses", b'{"input": {"a": [1, 2'),
    ("/v1/responses", b'{"input": "a", "previous_response_id": "resp_of_nobody"}'),
    ("/mcp", b"\xff\xfe"),
    ("/mcp", b"[" * 5000),
)
"""Bodies that are refused, and where they are sent."""


@dataclass
class Outcome:
    """What became of all operations."""

    done: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    memory: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Operations until then, and the bytes that the gateway held."""

    def growth(self) -> float:
        """MB in 10,000 operations, over the second half of them; caches fill in the first."""
        half = [(count, held) for count, held in self.memory if count > self.done.total() / 2]
        return linear_regression(*zip(*half, strict=True)).slope / 100 if len(half) > 1 else 0.0

    def lines(self) -> list[str]:
        """For a person."""
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.done.most_common())
        last = self.memory[-1][1] / 1e6 if self.memory else 0
        return [
            f"{self.done.total()} operations: {kinds}",
            f"wrong answers: {len(self.wrong)}",
            f"memory: {last:.0f} MB, grew by {self.growth():.3f} MB in 10,000 operations of the second half",
            *(f"! {each}" for each in self.wrong[:20]),
        ]


class Soak:
    """The operations; each gives what is wrong with its answer, or nothing."""

    def __init__(self, http: httpx2.AsyncClient, clients: list[HttpClient], draw: random.Random) -> None:
        """`clients`: of /mcp, one for each era."""
        self._http = http
        self._clients = clients
        self._draw = draw
        self._calls = 0

    def kinds(self) -> dict[str, tuple[int, Callable[[], Awaitable[str]]]]:
        """The operations and how often each comes among all: an answer of the model takes as long as fifty calls."""
        return {
            "call": (80, self.call),
            "refused": (12, self.refused),
            "cut": (2, self.cut),
            "chat": (2, self.chat),
            "messages": (2, self.messages),
            "responses": (2, self.responses),
        }

    async def call(self) -> str:
        """A call of a tool that says its argument again."""
        self._calls += 1
        text = f"{self._calls} {'x' * self._draw.randrange(2000)}"
        said = await self._draw.choice(self._clients).call("do", text=text)
        return "" if said.text == text and not said.failed else f"call: {said.raw}"

    async def refused(self) -> str:
        """A body that is no request."""
        path, body = self._draw.choice(WRONG)
        answer = await self._http.post(path, content=body, headers=self._clients[0].headers)
        good = 400 <= answer.status_code < 500 and answer.json()["error"]
        return "" if good else f"{path} {body[:60]!r}: {answer.status_code} {answer.text[:200]}"

    async def cut(self) -> str:
        """A stream that its reader leaves after the first event."""
        body = {**self._question(), "stream": True, "max_tokens": 64}
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            first = await anext(answer.aiter_lines())
        return "" if first.startswith("data: {") else f"cut: {answer.status_code} {first[:200]}"

    async def chat(self) -> str:
        """A whole stream of Chat Completions."""
        body = {**self._question(), "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 12}
        answer = await self._http.post("/v1/chat/completions", json=body)
        *chunks, last = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
        events = [json.loads(chunk) for chunk in chunks]
        ends = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]
        used = events[-1]["usage"]["completion_tokens"] if events else 0
        good = last == "[DONE]" and len(ends) == 1 and 0 < used <= 12
        return "" if good else f"chat: {answer.status_code} {answer.text[-400:]}"

    async def messages(self) -> str:
        """An answer of the Messages API."""
        answer = await self._http.post("/v1/messages", json={**self._question(), "max_tokens": 12})
        told = answer.json()
        good = told.get("type") == "message" and 0 < told["usage"]["output_tokens"] <= 12 and told["stop_reason"]
        return "" if good else f"messages: {answer.status_code} {answer.text[:400]}"

    async def responses(self) -> str:
        """A stored response, as it is told again."""
        body = {"model": "m", "input": self._question()["messages"], "max_output_tokens": 16}
        answer = await self._http.post("/v1/responses", json=body)
        told = answer.json()
        again = (await self._http.get(f"/v1/responses/{told.get('id')}")).json()
        good = told.get("output") and again.get("output") == told["output"]
        return "" if good else f"responses: {answer.status_code} {answer.text[:400]}"

    def _question(self) -> dict[str, Any]:
        words = f"{self._draw.choice(QUESTIONS)} ({self._draw.randrange(50)})"
        return {"model": "m", "messages": [{"role": "user", "content": words}]}


@contextmanager
def soaked_gateway(folder: Path) -> Generator[RunningGateway]:
    """A gateway with the embedded engine and one server, as `soak` needs it."""
    servers = {"near": {"command": sys.executable, "args": [str(FAULTY)]}}
    # So that what is kept on purpose has reached its bound in the first half.
    bounds = {"LIMITS__MEMORY_BYTES": 1 << 20, "LIMITS__RESPONSES_BYTES": 1 << 20, "ENGINE__SLOT_FILES_BYTES": 1 << 27}
    env = {"XDG_STATE_HOME": str(folder), **{f"CODEC_GATEWAY_{name}": str(size) for name, size in bounds.items()}}
    with running_gateway(folder, servers, "--engine", "embedded", env=env) as gateway:
        yield gateway


async def soak(url: str, memory: Callable[[], int], seconds: float, seed: int, *, workers: int = 4) -> Outcome:
    """Operations on the gateway at this address, so many at a time, until the time is over."""
    outcome, draw = Outcome(), random.Random(seed)
    until = time.monotonic() + seconds
    async with (
        httpx2.AsyncClient(base_url=url, timeout=240, trust_env=False) as http,
        http_client(url, "handshake") as old,
        http_client(url, "modern") as new,
    ):
        kinds = Soak(http, [old, new], draw).kinds()
        weights = [weight for weight, _ in kinds.values()]

        async def work(first: list[str]) -> None:
            while first or time.monotonic() < until:
                kind = first.pop() if first else draw.choices([*kinds], weights)[0]
                if found := await kinds[kind][1]():
                    outcome.wrong.append(found)
                outcome.done[kind] += 1
                if outcome.done.total() % 100 == 0:
                    outcome.memory.append((outcome.done.total(), memory()))

        async with anyio.create_task_group() as tasks:
            # Each kind once, however short the time is.
            for first in [[*kinds], *[list[str]() for _ in range(workers - 1)]]:
                tasks.start_soon(work, first)
    return outcome
