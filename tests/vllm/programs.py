"""The real vllm-router with program scheduling: it keeps a conversation for as long as the gateway says a tool takes.

`python -m tests.vllm.programs` (after `make vllm-install`). Behind the router stands a server without a model, which
has memory for one conversation of three. What the router knows decides whether it passes; the counts of tokens are
figures, since they depend on who comes first.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from gateway.engine.interface import GenerateRequest, Retention, shared_prefix
from gateway.engine.wire.vllm_client import Vllm
from gateway.engine.wire.vllm_json import IDS_PATH, PROGRAMS_PATH, schedules_programs
from leaf_sdk.testing import tiny_map
from tests.gateway.engine.engines import HEAD, FakeEngine, address_of, collect
from tests.vllm.router import router

TALKS, TURNS, TOOL = 3, 4, 0.3
"""Conversations, generations of each, and the seconds that a tool takes between two."""
PREAMBLE, RESULT = 1000, 50
"""Tokens with which a conversation begins, and of each result."""
SETTINGS: Final = {"max_active_programs_per_target": 1, "metrics_interval_seconds": 0.1}
FLAGS: Final = ("--enable-program-scheduling", "--program-scheduling-config-json", json.dumps(SETTINGS))
FIGURES: Final = """vllm:num_requests_running{engine="0",model_name="m"} 0
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.1
"""
"""What the router asks a server for."""
Saying = Callable[[str, bool], Retention | None]
"""What is said of a conversation with this name, which goes on or not."""
WAYS: Final[dict[str, Saying]] = {
    "nothing is said": lambda name, continues: None,
    "conversations are named": Retention,
    "and it is said how long the tool takes": lambda name, continues: Retention(name, continues, 2.5),
}


@dataclass
class SmallServer(FakeEngine):
    """Reuses what its last prompt shares with the next one."""

    held: list[int] = field(default_factory=list[int])

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        if path == "/metrics":
            return (HEAD.format(kind="text/plain") + f"content-length: {len(FIGURES)}\r\n\r\n{FIGURES}").encode()
        if path != IDS_PATH:
            return super()._answer(path, asked)
        prompt: list[int] = asked["token_ids"]
        told = {"prompt_tokens": len(prompt), "completion_tokens": 1, "total_tokens": len(prompt) + 1}
        usage = {**told, "prompt_tokens_details": {"cached_tokens": shared_prefix(self.held, prompt)}}
        self.held = prompt
        messages = [{"choices": [{"token_ids": [5], "finish_reason": "length"}]}, {"choices": [], "usage": usage}]
        events = "".join(f"data: {json.dumps(each)}\n\n" for each in messages) + "data: [DONE]\n\n"
        head = HEAD.format(kind="text/event-stream") + f"content-length: {len(events)}\r\n\r\n"
        return (head + events).encode()

    async def run(self, *, task_status: TaskStatus[str]) -> None:
        """Serve, at the address that is reported."""
        async with address_of(self) as address:
            task_status.started(address.url)
            await anyio.sleep_forever()


async def processed(client: Vllm, ids: list[int], retention: Retention | None) -> int:
    """How many tokens of a prompt were processed."""
    _, end = await collect(client, GenerateRequest(ids, None, 1, retention=retention))
    return len(ids) - end.timings.cache_n


async def again(client: Vllm, way: str) -> int:
    """How many tokens were processed again, of three conversations at a time."""
    lost = 0

    async def talk(number: int) -> None:
        nonlocal lost
        ids: list[int] = []
        for turn in range(TURNS):
            more = [10 + number] * (RESULT if turn else PREAMBLE)
            ids = ids + more
            lost += await processed(client, ids, WAYS[way](f"{way}{number}", turn < TURNS - 1)) - len(more)
            await anyio.sleep(TOOL)

    async with anyio.create_task_group() as tasks:
        for number in range(TALKS):
            tasks.start_soon(talk, number)
    return lost


def known(routed: str) -> dict[str, float]:
    """The programs that the router knows, by name: for how many more seconds it keeps each."""
    told = httpx2.get(f"{routed}{PROGRAMS_PATH}").json()
    found = [program for rank in told["ranks"] for program in rank["programs"]]
    return {each["root_program_id"]: each["ttl_remaining_seconds"] or 0 for each in found}


async def measured(routed: str) -> bool:
    """Whether the router does what it is told; writes the figures."""
    client = Vllm(routed, at_once=TALKS, token_map=tiny_map())
    # The router holds requests back: one that it would let through must not wait for their connections.
    client._connections.allow(TALKS)
    await processed(client, [1, 2, 3], Retention("kept", continues=True, seconds=600))
    kept = known(routed).get("kept", 0) > 60
    await processed(client, [1, 2, 3], Retention("kept", continues=False))
    released = "kept" not in known(routed)
    sys.stdout.write(f"kept while its tool runs: {kept}; released at the end: {released}\n")
    for way in WAYS:
        sys.stdout.write(f"{way}: {await again(client, way)} tokens processed again\n")
    await client.aclose()
    answer = httpx2.get(f"{routed}{PROGRAMS_PATH}")
    return schedules_programs(answer.status_code, answer.content) and kept and released


def main() -> int:
    """Ends with 1 where the router does not do what it is told."""
    with start_blocking_portal() as portal:
        running, url = portal.start_task(SmallServer(tiny_map()).run)
        with router(url, policy="consistent_hash", flags=FLAGS) as routed:
            done = anyio.run(measured, routed)
        running.cancel()
    return 0 if done else 1


if __name__ == "__main__":
    raise SystemExit(main())
