"""`serve --workers 2` with an embedded engine: the parent runs it, and each worker has slots of its own there."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from gateway.app.worker_affinity import home_of
from gateway.proxy.caller import ANYBODY
from tests.e2e.conftest import running_gateway
from tests.e2e.test_workers import Gateway

pytestmark = pytest.mark.anyio


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with running_gateway(tmp_path, {}, "--engine", "embedded", "--workers", "2") as running:
        yield Gateway(running)


async def answered(http: httpx2.AsyncClient, url: str, words: str) -> dict[str, Any]:
    """How many ids of a prompt there were, and how many of them stood in the engine's cache."""
    body = {"messages": [{"role": "user", "content": words}], "max_tokens": 4, "temperature": 0}
    with anyio.fail_after(120):
        answer = await http.post(f"{url}/v1/chat/completions", json=body)
    return answer.json()["usage"]


def at_home_in(number: int) -> str:
    """A question that this one of two workers answers."""
    words = (f"How many legs have {count} spiders?" for count in itertools.count(2))
    return next(each for each in words if home_of(ANYBODY.name, each, 2) == number)


async def test_each_worker_keeps_its_conversations_in_slots_of_its_own_whichever_is_asked(gateway: Gateway) -> None:
    asked = [at_home_in(number) for number in range(2)]
    async with gateway.reached(0) as one, gateway.reached(1) as other:
        first = [await answered(one, gateway.url, words) for words in asked]
        again = [await answered(other, gateway.url, words) for words in asked]

    assert all(each["prompt_tokens"] > 0 for each in first)
    assert [each["prompt_tokens_details"]["cached_tokens"] for each in again] == [
        each["prompt_tokens"] - 1 for each in again
    ]
    ready = gateway.running.log.events("engine ready")
    assert {each["worker"]: each["slots"] for each in ready} == {0: 1, 1: 1}
    assert len({each["url"] for each in ready}) == 1


async def test_engine_that_dies_is_started_once_again_for_both_workers(gateway: Gateway) -> None:
    gateway.running.log.wait_for("engine ready", count=2)
    (started,) = gateway.running.log.events("engine started")
    os.kill(started["pid"], signal.SIGKILL)
    gateway.running.log.wait_for("engine ready", count=4)
    async with gateway.reached(0) as one, gateway.reached(1) as other:
        for http in (one, other):
            assert (await answered(http, gateway.url, "Say yes."))["completion_tokens"] > 0

    assert len(gateway.running.log.events("engine started")) == 2


def test_engine_ends_with_the_gateway(gateway: Gateway, is_running: Any) -> None:
    (started,) = gateway.running.log.events("engine started")
    gateway.running.process.terminate()

    assert gateway.running.process.wait(60) == 0
    assert not is_running(started["pid"])
