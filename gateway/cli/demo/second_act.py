"""The demo's second act: an application that runs its own tool, through the gateway and without it.

Starts a llama-server twice, in the same way, and holds one conversation with each. The application is `own_tool.py`,
unchanged, both times; the first time the gateway is in between. Collects what the servers report about their work.
"""

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from subprocess import DEVNULL, PIPE
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import anyio
from anyio.abc import ByteReceiveStream
from anyio.streams.text import TextReceiveStream

from gateway.cli.demo.tools_template import TEMPLATE
from gateway.config import EngineConfig
from gateway.engine.embedded import EmbeddedServer, Listening, embedded_server
from gateway.engine.packaged_model import packaged_model
from gateway.errors import EngineUnavailable, GatewayError

_HERE: Final = Path(__file__).parent
_ENGINE: Final = EngineConfig(kind="embedded", slots=1, cache_mib=0)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. Counts are ids; `ms`: milliseconds to the first id, as the server reports them."""

    calls: tuple[str, ...]
    held: int
    """What the engine held of the conversation before this request."""
    processed: int
    reused: int
    ms: float
    why: str | None
    """Why not everything held was reused; None: it was, or the server does not say."""

    @property
    def lost(self) -> int:
        """Ids that were held and had to be processed again."""
        return max(self.held - self.reused, 0)


@dataclass(frozen=True, slots=True)
class SecondAct:
    """The same conversation twice: through the gateway, and with the engine alone."""

    through: tuple[Asked, ...]
    alone: tuple[Asked, ...]


async def play() -> SecondAct:
    """Hold both conversations. Raises the gateway's own errors if something does not start."""
    through = alone = ()
    failure: GatewayError | None = None
    try:
        async with _llama_server() as server, _gateway(server) as url:
            through = _through(await _held(url, "none"))
        async with _llama_server() as server:
            alone = _alone(await _held(server.url, server.key or "", CALL_BEGUN="yes"))
    # A context that runs a server in the background raises errors from inside it in a group.
    except* GatewayError as group:
        failure = _first(group)
    if failure is not None:
        raise failure
    return SecondAct(through, alone)


def _first(group: BaseExceptionGroup[GatewayError]) -> GatewayError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _through(told: list[dict[str, Any]]) -> tuple[Asked, ...]:
    """The requests as the gateway's answers describe them: one turn each, since the application runs the calls."""
    asked: list[Asked] = []
    for each in told:
        (turn,) = each["codec"]["turns"]
        prompt: dict[str, Any] = each["codec"].get("prompt") or {}
        why: str | None = prompt.get("reason")
        numbers = turn["held"], turn["prompt_n"], turn["cache_n"], turn["ttft_ms"]
        asked.append(Asked(tuple(each["calls"]), *numbers, why))
    return tuple(asked)


def _alone(told: list[dict[str, Any]]) -> tuple[Asked, ...]:
    """The requests as llama-server's answers describe them. How far it found cached ids tells why it lost others."""
    first = told[0]["timings"]
    asked = [Asked(tuple(told[0]["calls"]), 0, first["prompt_n"], first["cache_n"], first["prompt_ms"], None)]
    for was, now in pairwise(told):
        before, after = was["timings"], now["timings"]
        prompt = before["cache_n"] + before["prompt_n"]
        # The last id of an answer was sampled but not processed.
        held = prompt + before["predicted_n"] - 1
        why = None
        if after["cache_n"] < held:
            turn = "the call" if was["calls"] else "the answer"
            why = f"{turn} came back as different ids" if after["cache_n"] >= prompt else "the prompt came back changed"
        asked.append(Asked(tuple(now["calls"]), held, after["prompt_n"], after["cache_n"], after["prompt_ms"], why))
    return tuple(asked)


async def _held(url: str, key: str, **more: str) -> list[dict[str, Any]]:
    """Run the application against a server; returns what it printed."""
    environment = _environment({"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key, **more})
    command = [sys.executable, str(_HERE / "own_tool.py")]
    done = await anyio.run_process(command, env=environment, check=False)
    if done.returncode:
        raise EngineUnavailable(f"the demo's application failed: {done.stderr.decode(errors='replace')[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


@asynccontextmanager
async def _llama_server() -> AsyncGenerator[EmbeddedServer]:
    async with embedded_server(_ENGINE, Listening(), template=TEMPLATE.strip()) as server:
        yield server


@asynccontextmanager
async def _gateway(engine: EmbeddedServer) -> AsyncGenerator[str]:
    """Run `codec-gateway serve` as an operator does; yields its address."""
    settings = {"kind": "url", "url": engine.url, "api_key": engine.key, "exclusive": True}
    command = [sys.executable, "-m", "gateway", "serve", "--port", "0", "--admin-port", "0"]
    with TemporaryDirectory(prefix="codec-demo-") as folder:
        lines = ["[engine]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
        lines += ["[tokens]", f"map = {json.dumps(str(packaged_model()))}"]
        await anyio.Path(folder, "codec-gateway.toml").write_text("\n".join(lines), encoding="utf-8")
        async with await anyio.open_process(
            command, cwd=folder, env=_environment({}), stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
        ) as process:
            try:
                yield await _ready(cast("ByteReceiveStream", process.stderr))
            finally:
                process.terminate()


async def _ready(stderr: ByteReceiveStream) -> str:
    """The address that the gateway logs when it is ready."""
    rest = ""
    async for text in TextReceiveStream(stderr, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            if '"gateway ready"' in line:
                return str(json.loads(line)["url"])
    raise EngineUnavailable(f"the demo's gateway did not start: {rest[-500:]}")


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, without the variables that would be settings of a gateway."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")} | dict(more)
