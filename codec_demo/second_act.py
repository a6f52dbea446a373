"""The demo's second act: an agent that runs its own tools, through the gateway and with a plain llama-server.

Starts the gateway as an operator does, and a llama-server with its defaults. The agent (`agent_loop.py`) asks both the
same requests, one after the other. Turns their answers into counts of tokens.
"""

import importlib.util
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import httpx2
from anyio.abc import ByteReceiveStream
from anyio.streams.text import TextReceiveStream

from codec_demo.tools_template import TEMPLATE
from gateway.config import EngineConfig
from gateway.engine.embedded.engine_process import threads_of
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.errors import ConfigError, EngineUnavailable, GatewayError, first_of_ours

if TYPE_CHECKING:
    from codec_demo.agent_loop import Exchange, Step

GATEWAY: Final = "gateway"
PLAIN: Final = "llama-server"
_START_TIMEOUT: Final = 180
"""Seconds until both servers have to be ready: they load their models at the same time, perhaps on a busy machine."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to one server; counts are prompt tokens."""

    number: int
    who: str
    required: bool
    """Whether the agent required a call."""
    calls: tuple[str, ...]
    prompt: int
    cached: int
    recomputed: int
    """Tokens that had been in the server's cache and were processed again."""
    ms: float
    """Milliseconds to the first token, as the server reports them."""

    @property
    def processed(self) -> int:
        """Tokens that the server had to process."""
        return self.prompt - self.cached


@dataclass(frozen=True, slots=True)
class SecondAct:
    """The same requests to both servers."""

    gateway: tuple[Request, ...]
    plain: tuple[Request, ...]


async def play(
    progress: Callable[[str], None],
    steps: "Sequence[Step] | None" = None,
    tools: int = 20,
    model: Path | None = None,
) -> SecondAct:
    """Start both servers and hold the conversations. Raises the gateway's own errors if something does not start.

    Both have the packaged model, unless there is another one.
    """
    if importlib.util.find_spec("openai") is None:
        raise ConfigError("the demo needs the package openai; install it with: pip install 'codec-gateway[demo]'")
    # Here, since the package openai takes a second to load, and the first act does not need it.
    from codec_demo.agent_loop import STEPS, Server, hold_conversations

    steps = steps or STEPS
    failure: GatewayError | None = None
    exchanges: list[Exchange] = []
    try:
        async with _gateway(model) as through, _plain_server(model or packaged_model()) as plain:
            servers = (Server(GATEWAY, through), Server(PLAIN, plain))
            async for each in hold_conversations(servers, steps, tools):
                exchanges.append(each)
                progress(f"request {each.number} of {len(steps)} to {each.server}: answered")
    # A context that runs a server in the background raises errors from inside it in a group.
    except* GatewayError as group:
        failure = first_of_ours(group)
    if failure is not None:
        raise failure
    return count(exchanges)


def count(exchanges: "Sequence[Exchange]") -> SecondAct:
    """Turn the answers into counts.

    What a server's cache held before a request: the prompt and the answer before it in the same conversation, but for
    the last token, which was sampled and not processed. For a conversation's first request, it is what the better of
    the two servers found, in what the other conversation has in common with it.
    """
    cached = [_cached(each.answer) for each in exchanges]
    shared: dict[tuple[int, str], int] = {}
    for each, found in zip(exchanges, cached, strict=True):
        shared[each.number, each.who] = max(shared.get((each.number, each.who), 0), found)
    held: dict[tuple[str, str], int] = {}
    requests: dict[str, list[Request]] = {GATEWAY: [], PLAIN: []}
    for each, found in zip(exchanges, cached, strict=True):
        usage = each.answer["usage"]
        prompt = usage["prompt_tokens"]
        before = held.get((each.server, each.who), shared[each.number, each.who])
        held[each.server, each.who] = prompt + usage["completion_tokens"] - 1
        again = max(before - found, 0)
        requests[each.server].append(
            Request(
                each.number, each.who, each.required, each.calls, prompt, found, again, _first_token_ms(each.answer)
            )
        )
    return SecondAct(tuple(requests[GATEWAY]), tuple(requests[PLAIN]))


def _cached(answer: Mapping[str, Any]) -> int:
    turn = _turn(answer)
    return int(turn["cache_n"] if turn else answer["timings"]["cache_n"])


def _first_token_ms(answer: Mapping[str, Any]) -> float:
    turn = _turn(answer)
    return float(turn["ttft_ms"] if turn else answer["timings"]["prompt_ms"])


def _turn(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the gateway says of its one turn; None in an answer of llama-server."""
    codec: dict[str, Any] | None = answer.get("codec")
    return codec["turns"][0] if codec else None


@asynccontextmanager
async def _plain_server(model: Path) -> AsyncGenerator[str]:
    """Run a llama-server with its defaults; yields its address."""
    settings = {"model": str(model), "threads": threads_of(EngineConfig()), "template": TEMPLATE.strip()}
    command = [sys.executable, "-m", "codec_demo.plain_server", json.dumps(settings)]
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
        try:
            yield await _address(_lines(cast("ByteReceiveStream", process.stdout)))
        finally:
            process.kill()


@asynccontextmanager
async def _gateway(model: Path | None) -> AsyncGenerator[str]:
    """Run `codec-gateway serve` with its embedded engine; yields its address once the engine is ready."""
    command = [sys.executable, "-m", "gateway", "serve", "--port", "0", "--admin-port", "0"]
    # Settings of the user's own gateway are not the demo's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")}
    with TemporaryDirectory(prefix="codec-demo-") as folder:
        settings = '[engine]\nkind = "embedded"\n' + (f"model = {json.dumps(str(model))}\n" if model else "")
        await anyio.Path(folder, "codec-gateway.toml").write_text(settings, encoding="utf-8")
        async with (
            await anyio.open_process(
                command, cwd=folder, env=environment, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
            ) as process,
            anyio.create_task_group() as tasks,
        ):
            log = _lines(cast("ByteReceiveStream", process.stderr))
            try:
                url = await _url(log)
                tasks.start_soon(_drain, log)
                await _engine_ready(url)
                yield url
            finally:
                process.terminate()
                tasks.cancel_scope.cancel()


async def _address(lines: AsyncIterator[str]) -> str:
    """The address that the llama-server prints when its model is loaded."""
    with anyio.move_on_after(_START_TIMEOUT):
        async for line in lines:
            return line
    raise EngineUnavailable("the demo's llama-server did not start; run the demo again, or with --short")


async def _url(log: AsyncIterator[str]) -> str:
    last = "nothing"
    with anyio.move_on_after(_START_TIMEOUT):
        async for line in log:
            last = line
            if '"gateway ready"' in line:
                return str(json.loads(line)["url"])
    raise EngineUnavailable(f"the demo's gateway did not start; its log ends with: {last[-500:]}")


async def _engine_ready(url: str) -> None:
    """Wait until the gateway's engine has loaded its model."""
    said = ""
    with anyio.move_on_after(_START_TIMEOUT):
        async with httpx2.AsyncClient(trust_env=False) as client:
            while True:
                try:
                    answer = await client.get(f"{url}/v1/models", timeout=_START_TIMEOUT)
                except httpx2.HTTPError as error:
                    raise EngineUnavailable(f"the demo's gateway does not answer: {error!r}") from error
                if answer.is_success:
                    return
                said = answer.text
                await anyio.sleep(0.2)
    raise EngineUnavailable(f"the engine of the demo's gateway did not start: {said[-500:]}")


async def _drain(log: AsyncIterator[str]) -> None:
    async for _ in log:
        pass


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[str]:
    rest = ""
    async for text in TextReceiveStream(stream, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line
