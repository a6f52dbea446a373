"""The reference's two scenarios, through the endpoints: a handoff of 1,024 tokens, and a loop of two turns with a tool.

A handoff goes to an agent behind the gateway, as text in JSON or as ids in msgpack; the engine is the stub, so that
only the transfer is measured. The loop runs on a real engine: a client that runs the tool itself and asks twice, and a
gateway that runs it, in JSON and in frames. Turns a running gateway into rows.
"""

import json
from collections.abc import Callable
from random import Random
from time import perf_counter, process_time
from typing import Any, Final, cast

import httpx2
import msgpack

from bench.path.single import idle_share
from bench.processes import Gateway
from bench.record import summary
from bench.wire.streams import stream
from codec_bench.processor import cpu_seconds
from leaf_sdk import TokenMap
from leaf_sdk.wire import Decoder, FrameReader

HANDED: Final = 1024
_pack: Final = cast("Callable[[object], bytes]", cast("Any", msgpack).packb)
_ASKED: Final = {"max_tokens": 1, "temperature": 0}
_QUESTION: Final = [{"role": "user", "content": "What time is it in Paris?"}]
_TOOL: Final = "get_time"
_LOOP: Final = {"temperature": 0, "seed": 1, "max_tokens": 64, "stream": True}

Sample = dict[str, float]
Asked = tuple[bytes, bytes, float]
"""The body of a request, the body of its answer, and the seconds that it took."""


async def handoff(gateway: Gateway, token_map: TokenMap, tries: int = 40) -> dict[str, Any]:
    """Hand 1,024 tokens to an agent behind the gateway: different ones each time, the two forms taking turns."""
    idle = await idle_share(gateway)
    taken: dict[str, list[Sample]] = {"text in JSON": [], "ids in msgpack": []}
    with httpx2.Client(base_url=gateway.url, timeout=60) as client:
        for turn in range(tries + 3):
            ids = _handed(turn)
            by_text = _hand(client, gateway, idle, lambda ids=ids: _as_text(ids, token_map))
            by_ids = _hand(client, gateway, idle, lambda ids=ids: _as_ids(ids))
            # The first few warm up.
            if turn >= 3:
                taken["text in JSON"].append(by_text)
                taken["ids in msgpack"].append(by_ids)
    return {name: _summed(samples) for name, samples in taken.items()}


def _handed(turn: int) -> list[int]:
    """Return 1,024 ids, different each time: prose and code in turns, in a moving window."""
    ids = stream("prose" if turn % 2 else "code")
    at = turn * 61 % (len(ids) - HANDED)
    return list(ids[at : at + HANDED])


def _as_text(ids: list[int], token_map: TokenMap) -> tuple[str, str, bytes]:
    body = json.dumps({"prompt": token_map.decode(ids), **_ASKED}).encode()
    return "/v1/completions", "application/json", body


def _as_ids(ids: list[int]) -> tuple[str, str, bytes]:
    return "/v1/completions/codec", "application/x-msgpack", _pack({"prompt_ids": ids, **_ASKED})


def _hand(client: httpx2.Client, gateway: Gateway, idle: float, make: Callable[[], tuple[str, str, bytes]]) -> Sample:
    pid, began, ours = gateway.running.pid, perf_counter(), process_time()
    before = cpu_seconds(pid)
    path, kind, body = make()
    made = process_time() - ours
    answer = client.post(path, content=body, headers={"content-type": kind, "accept-encoding": "identity"})
    wall = perf_counter() - began
    spent = cpu_seconds(pid) - before - idle * wall
    if answer.status_code != 200:
        raise SystemExit(f"{path}: {answer.status_code} {answer.text[:300]!r}")
    return {"bytes": float(len(body)), "ms": wall * 1e3, "sender_ms": made * 1e3, "gateway_ms": spent * 1e3}


def loop(gateway: Gateway, rounds: int) -> dict[str, Any]:
    """Run the loop in three ways, in a new random order each round, after a round that warms up.

    Each way finds in the engine's cache what the one before it has left there.
    """
    runs: dict[str, Callable[[httpx2.Client], list[Asked]]] = {
        "JSON, the client runs the tool": _by_client,
        "JSON, the gateway runs it": lambda client: [_post(client, _by_gateway())],
        "protobuf and gzip, the gateway runs it": lambda client: [_framed(client)],
    }
    taken: dict[str, list[Sample]] = {name: [] for name in runs}
    drawn = Random(1)
    with httpx2.Client(base_url=gateway.url, timeout=120) as client:
        for turn in range(rounds + 1):
            for name in drawn.sample(list(runs), len(runs)):
                asked = runs[name](client)
                sample = {
                    "requests": float(len(asked)),
                    "bytes_up": float(sum(len(up) for up, _, _ in asked)),
                    "bytes_down": float(sum(len(down) for _, down, _ in asked)),
                    "ms": sum(seconds for _, _, seconds in asked) * 1e3,
                }
                if turn:
                    taken[name].append(sample)
    return {name: _summed(samples) for name, samples in taken.items()}


def _by_gateway() -> dict[str, Any]:
    return {**_LOOP, "messages": _QUESTION, "tool_choice": {"type": "function", "function": {"name": _TOOL}}}


def _framed(client: httpx2.Client) -> Asked:
    asked = _post(client, {**_by_gateway(), "stream_format": "protobuf"}, "gzip")
    frames = FrameReader("protobuf").feed(Decoder("gzip").feed(asked[1]))
    if not any(part.call_id for frame in frames for part in frame.extras.spliced) or not frames[-1].done:
        raise SystemExit("the frames hold no result of the tool")
    return asked


def _by_client(client: httpx2.Client) -> list[Asked]:
    """Run it as a client of OpenAI's API does: the call comes back, and is sent again with its result."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    function = {"name": "clock", "description": "Get the current time in a city", "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    named = {"type": "function", "function": {"name": "clock"}}
    first = _post(client, {**_LOOP, "messages": _QUESTION, "tools": tools, "tool_choice": named})
    call = _call_in(first[1])
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {
        "role": "tool",
        "tool_call_id": call["id"],
        "content": "It is 14:37 on Saturday, 21 November 2026 in Paris (CET, UTC+1).",
    }
    second = _post(client, {**_LOOP, "messages": [*_QUESTION, called, result], "tools": tools})
    return [first, second]


def _call_in(body: bytes) -> dict[str, Any]:
    """Return the call in a stream of deltas."""
    name, arguments, call_id = "", "", ""
    for line in body.split(b"\n\n"):
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            for call in choice["delta"].get("tool_calls") or ():
                call_id = call.get("id") or call_id
                name += call["function"].get("name") or ""
                arguments += call["function"].get("arguments") or ""
    if not name:
        raise SystemExit(f"the model called nothing: {body[-500:]!r}")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _post(client: httpx2.Client, fields: dict[str, Any], coding: str = "identity") -> Asked:
    body, began = json.dumps(fields).encode(), perf_counter()
    headers = {"content-type": "application/json", "accept-encoding": coding}
    with client.stream("POST", "/v1/chat/completions", content=body, headers=headers) as answer:
        down = b"".join(answer.iter_raw())
    if answer.status_code != 200:
        raise SystemExit(f"/v1/chat/completions: {answer.status_code} {down[:300]!r}")
    return body, down, perf_counter() - began


def _summed(samples: list[Sample]) -> dict[str, Any]:
    return {key: summary([sample[key] for sample in samples]) for key in samples[0]}
