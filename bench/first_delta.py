"""How soon the first delta of an answer leaves the gateway, with a real engine: `python -m bench.first_delta`.

Three processes, as in production: the embedded engine, the gateway, and this one, which is the gateway's client and
also relays between gateway and engine (`Relay`), so that both times are read from one clock. It measures the way from
the engine's message to the client's delta, in milliseconds and in tokens. Method: README.md.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import anyio
import httpx2
from anyio.abc import SocketAttribute, SocketStream

from bench.processes import gateway_environment
from bench.record import summary, write
from gateway.engine.embedded.packaged_model import packaged_model

ROUNDS = 9
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{words}.",
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string", "maxLength": 12}},
                "required": [key],
            },
        },
    }
    for name, words, key in (
        ("get_weather", "The weather of a city", "city"),
        ("get_time", "The time in a zone", "zone"),
        ("find_flight", "A flight to a city", "to"),
    )
]
SHORT = {"messages": [{"role": "user", "content": "Say hello to Anna."}], "max_tokens": 16}
LONG = {"messages": [{"role": "user", "content": "Tell me a long story about a lighthouse."}], "max_tokens": 160}
CALL = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}], "max_tokens": 80, "tools": TOOLS}
SCENARIOS: dict[str, dict[str, Any]] = {
    "plain short": SHORT,
    "plain short, tools offered": {**SHORT, "tools": TOOLS},
    "plain long": LONG,
    "plain long, tools offered": {**LONG, "tools": TOOLS},
    "tool call": {**CALL, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
}
NAME = '"get_weather"'
"""The text with which a call can be recognised."""


@dataclass
class Seen:
    """The messages of one generation, and when they passed."""

    times: list[float] = field(default_factory=list[float])
    texts: list[str] = field(default_factory=list[str])

    def first(self) -> int:
        """Return the number of the first message with text, from 0."""
        return next(number for number, text in enumerate(self.texts) if text)

    def named(self) -> int:
        """Return the number of the message that completes the call's name."""
        whole = ""
        for number, text in enumerate(self.texts):
            whole += text
            if NAME in whole:
                return number
        raise SystemExit(f"the engine wrote no call: {whole!r}")


class Relay:
    """Passes bytes between the gateway and the engine, and notes when each message of a generation passes."""

    def __init__(self, engine_port: int) -> None:
        self._engine_port = engine_port
        self.seen = Seen()

    async def carry(self, gateway: SocketStream) -> None:
        """Serve one connection from the gateway."""
        engine = await anyio.connect_tcp("127.0.0.1", self._engine_port)
        async with gateway, engine, anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on, gateway, engine, False)
            await self._pass_on(engine, gateway, True)
            tasks.cancel_scope.cancel()

    async def _pass_on(self, source: SocketStream, target: SocketStream, noted: bool) -> None:
        held = b""
        try:
            async for data in source:
                held = self._note(held + data) if noted else b""
                await target.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    def _note(self, data: bytes) -> bytes:
        now = perf_counter()
        *lines, rest = data.split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                message = json.loads(line[6:])
                if "content" in message:
                    self.seen.times.append(now)
                    self.seen.texts.append(message["content"])
        return rest


@contextmanager
def process(*command: str) -> Generator[subprocess.Popen[str]]:
    """Run a process of our own code, and end it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", *command], env=gateway_environment(), text=True, stdin=pipe, stdout=pipe, stderr=pipe
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def gateway_address(child: subprocess.Popen[str]) -> str:
    """Wait until the gateway says where it listens and that its map is proven on the engine."""
    said: dict[str, Any] = {}
    for line in child.stderr or ():
        entry = json.loads(line)
        said[entry["event"]] = entry
        if {"gateway ready", "engine ready"} <= said.keys():
            return str(said["gateway ready"]["url"])
    raise SystemExit("the gateway did not start")


async def deltas(client: httpx2.AsyncClient, request: Mapping[str, Any]) -> AsyncIterator[tuple[float, dict[str, Any]]]:
    """Yield the non-empty deltas of a streamed answer, each with the time when it arrived."""
    async with client.stream("POST", "/v1/chat/completions", json={**request, "stream": True}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {") and (choices := json.loads(line[6:])["choices"]):
                delta = choices[0]["delta"]
                if delta.get("content") or delta.get("tool_calls"):
                    yield perf_counter(), delta


async def measure(client: httpx2.AsyncClient, relay: Relay, name: str, seed: int) -> dict[str, float]:
    """Measure one answer: the way of its first delta, and how far the engine was when that arrived."""
    relay.seen = seen = Seen()
    began = perf_counter()
    told = [item async for item in deltas(client, {**SCENARIOS[name], "seed": seed, "temperature": 0.7})]
    came, delta = told[0]
    awaited = seen.named() if name == "tool call" else seen.first()
    if ("tool_calls" in delta) != (name == "tool call"):
        raise SystemExit(f"{name!r} began with {delta!r}")
    return {
        "ms_from_the_engine_s_message": (came - seen.times[awaited]) * 1000,
        "messages_that_overtook_it": sum(time < came for time in seen.times) - awaited - 1,
        "ms_from_the_request": (came - began) * 1000,
        "ms_between_the_engine_s_messages": statistics.median(
            b - a for a, b in zip(seen.times, seen.times[1:], strict=False)
        )
        * 1000,
    }


async def run_all(relay: Relay, url: str) -> dict[str, Any]:
    """Measure every scenario, in turns, so that a busy moment affects all alike."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in SCENARIOS}
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client:
        for name in SCENARIOS:
            await measure(client, relay, name, 0)
        for seed in range(1, ROUNDS + 1):
            for name in SCENARIOS:
                samples[name].append(await measure(client, relay, name, seed))
    return {
        name: {key: summary([sample[key] for sample in taken]) for key in taken[0]} for name, taken in samples.items()
    }


async def bench() -> dict[str, Any]:
    """Start engine, relay and gateway, and measure."""
    results: dict[str, Any] = {}
    place = {"host": "127.0.0.1", "port": 0}
    settings = {"model": str(packaged_model()), "context": 4096, "slots": 2, "threads": 1, **place}
    with process("gateway.engine.embedded.child_process", json.dumps(settings)) as engine:
        port = int((engine.stdout.readline() if engine.stdout else "").rpartition(":")[2])
        relay = Relay(port)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, relay.carry)
            address = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            flags = ("--engine", address, "--port", "0", "--admin-port", "0")
            with process("gateway", "serve", *flags) as gateway:
                url = await anyio.to_thread.run_sync(gateway_address, gateway)
                results |= await run_all(relay, url)
            tasks.cancel_scope.cancel()
    return results


def main() -> None:
    """Measure, print a table, and write `results/first_delta.json`."""
    results = anyio.run(bench)
    path = write("first_delta", ("codec-gateway", "xllamacpp"), {"scenarios": results})
    print(f"{'scenario':28} {'ms behind the engine':>22}  overtaken by messages  ms from request  ms a token")
    for name, taken in results.items():
        behind, overtaking, whole, pace = (taken[key] for key in taken)
        print(
            f"{name:28} {behind['median']:8.2f} ({behind['min']:.2f}-{behind['max']:.2f})  "
            f"{overtaking['max']:21.0f}  {whole['median']:15.0f}  {pace['median']:10.1f}"
        )
    print(f"written: {path.relative_to(path.parents[2])}", file=sys.stderr)


if __name__ == "__main__":
    main()
