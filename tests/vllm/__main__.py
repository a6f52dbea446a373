"""Start the real vLLM, print its figures, the same behind the real vllm-router, and run the engines' tests over it.

`URL=http://...` takes a server that runs already. Everything is asked over the wire or through a gateway's own parts.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_urlsafe
from time import perf_counter, sleep

import anyio
import httpx2

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, Sampling
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.engine.wire.adapter import salt_of
from gateway.errors import GrammarRefused
from tests.vllm import programs, sessions, tags
from tests.vllm.router import FOLDER, healthy, router

PORT = 28200
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_WORKER_MULTIPROC_METHOD": "fork",
}
FLAGS = [
    *("--host", "127.0.0.1", "--port", str(PORT), "--served-model-name", "smol"),
    *("--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "4"),
]
OURS = ("--enable-scale-out", "--enable-prompt-tokens-details")
"""The flags that our documentation asks for."""
GREEDY = Sampling(temperature=0)


@contextmanager
def server(*flags: str) -> Iterator[str]:
    """The address of a vLLM server that is ready."""
    if url := os.environ.get("URL"):
        yield url
        return
    command = [str(FOLDER / "venv/bin/vllm"), "serve", str((FOLDER / "model").resolve()), *FLAGS, *flags]
    started = perf_counter()
    with (
        (FOLDER / "server.log").open("w") as log,
        subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log) as process,
    ):
        url = f"http://127.0.0.1:{PORT}"
        try:
            while not healthy(url):
                if process.poll() is not None:
                    raise SystemExit(f"vLLM ended at its start: see {log.name}")
                sleep(1)
            say("started in", f"{perf_counter() - started:.0f} s")
            yield url
        finally:
            process.terminate()
            process.wait()


def say(what: str, value: object) -> None:
    """One figure."""
    sys.stdout.write(f"{what:58} {value}\n")
    sys.stdout.flush()


async def collect(ready: ReadyEngine, request: GenerateRequest) -> tuple[list[int], GenerationEnd]:
    """All ids of a generation, and its end."""
    ids: list[int] = []
    async with ready.engine.generate(request) as events:
        async for event in events:
            if isinstance(event, Generated):
                ids += event.ids
            else:
                return ids, event
    raise AssertionError("no end")


def cached(end: GenerationEnd) -> int | str:
    """How many ids the server found in its cache."""
    return "not told" if end.known is None else end.known.cache_n


async def figures(url: str) -> None:
    """What the adapter finds."""
    config = GatewayConfig(engine=EngineConfig(kind="url", url=url, model=packaged_model()), tokens=TokensConfig())
    route = EngineRoute(config, lambda up, reason: None)
    begun = perf_counter()
    async with route.running():
        ready = route.ready()
        say("proof of map and template, seconds", f"{perf_counter() - begun:.2f}")
        say("ids of a block", ready.facts.can.reuse_block)
        held: list[int] = ready.token_map.encode("One two three four five six seven eight nine. " * 30)
        for turn in range(3):
            ids, end = await collect(ready, GenerateRequest(held, None, 48, GREEDY, grammar="root ::= [a-zA-Z ]+"))
            say(f"turn {turn + 1}: prompt ids, cached ids, generated", f"{len(held)}, {cached(end)}, {len(ids)}")
            held += [*(ids if end.ended_by is None else ids[:-1]), *ready.token_map.encode("\nAnd again, please.\n")]
        fresh = salt_of(token_urlsafe(), "eve")
        for name, salt in (("another salt", fresh), ("the same salt again", fresh)):
            _, end = await collect(ready, GenerateRequest(held, None, 1, GREEDY, salt=salt))
            say(f"{name}: cached ids of {len(held)}", cached(end))
        text = "Zürich 東京 😀 ok"
        ids, end = await collect(ready, GenerateRequest(held[:40], None, 64, GREEDY, grammar=f'root ::= "{text}"'))
        written = ready.token_map.decode(ids if end.ended_by is None else ids[:-1])
        say("ids of characters that are cut, exact", written == text)
        try:
            await collect(ready, GenerateRequest(held[:40], None, 4, GREEDY, grammar="root ::= ("))
        except GrammarRefused as error:
            say("bad grammar", error.message[:60])
        await aborted(ready, url, held)


async def aborted(ready: ReadyEngine, url: str, prompt: list[int]) -> None:
    """Leave in the middle of an answer, and look until the server works no more."""
    async with ready.engine.generate(GenerateRequest(prompt, None, 1000, GREEDY, grammar='root ::= "a"+')) as events:
        await anext(aiter(events))
        before = running(url)
    begun = perf_counter()
    while running(url) and perf_counter() - begun < 30:
        await anyio.lowlevel.checkpoint()
    say("abort: running before, after; seconds", f"{before:.0f}, {running(url):.0f}; {perf_counter() - begun:.2f}")


def running(url: str) -> float:
    """Requests that it works on."""
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("vllm:num_requests_running"))


def main() -> int:
    """Run all of it."""
    tags.main()
    say("as it starts without flags of ours", "")
    with server() as url:
        anyio.run(figures, url)
    with server(*OURS) as url:
        anyio.run(figures, url)
        with router(url, policy="cache_aware") as routed:
            say("behind vllm-router", routed)
            anyio.run(figures, routed)
        kept = sessions.main() or programs.main()
        over_it = ["tests/e2e/test_engines.py", "tests/gateway/engine/test_lazy_grammar.py"]
        command = [sys.executable, "-m", "pytest", "-q", "--timeout", "600", *over_it]
        return subprocess.run(command, env={**os.environ, "ENGINE": url}, check=False).returncode or kept


if __name__ == "__main__":
    raise SystemExit(main())
