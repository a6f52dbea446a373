"""A real llama.cpp server of our own, in a child process.

Turns `EngineConfig` into a running server and its URL, and ends it. The server comes with the package `xllamacpp`
(extra `[embedded]`), the model is a file of the operator or the packaged one (`packaged_model.py`). Requests to the
server are made elsewhere (`engine/wire/llama_cpp_client.py`), and so is the decision to restart it
(`start/readiness.py`).
"""

import importlib.util
import json
import os
import re
import secrets
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.to_thread import run_sync

from gateway.config import EngineConfig
from gateway.config.gateway_config import CHATML
from gateway.engine.embedded.child_process import PACKAGE, UNUSABLE
from gateway.engine.embedded.model_file import ModelFacts, examine_model, show_bytes
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.errors import ConfigError, EngineUnavailable, ModelUnusable
from gateway.escape import escape_text
from gateway.observe.logs import get_logger

# How much memory a process on this machine may still use, within the limit of its container.
#
# Turns what the kernel reports into mebibytes. It decides nothing and raises nothing: if nothing is reported, a
# machine with little memory is assumed.

_MIB: Final = 1024 * 1024
_UNKNOWN: Final = 2048 * _MIB


def usable_mib(root: Path = Path("/")) -> int:
    """Mebibytes that are available on the machine, or the lowest limit of a control group if that is less.

    Args:
        root: the directory that contains `proc` and `sys`.
    """
    return min([_available(root / "proc/meminfo"), *_limits(root)]) // _MIB


def _available(meminfo: Path) -> int:
    for line in _read(meminfo).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable" and (words := rest.split()) and words[0].isdigit():
            return int(words[0]) * 1024
    # Not Linux: half of the physical memory.
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        return _UNKNOWN


def _limits(root: Path) -> Iterator[int]:
    """The memory limits of this process's control group and all its parents, for both versions of control groups."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "memory"):
            continue
        mount = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        group = mount / path.lstrip("/")
        for each in (group, *group.parents):
            if (said := _read(each / name).strip()).isdigit():
                yield int(said)
            if each == mount:
                break


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


# Why an embedded engine ended, from its exit status and what it wrote to stderr.
#
# Turns a status and the last lines of the log into a sentence: the kind of the failure, the one line that tells most,
# and what to do. Lines are bounded and hold no control characters. Pure.

_SHOWN: Final = 200
_STAMP: Final = re.compile(r"^[\d.]+ [A-Z] (?:\w+ +)?(?:\w+: )?")
"""What llama.cpp puts before a message: time, level, component, function."""
_MEMORY: Final = re.compile(r"insufficient memory|failed to allocate|out of memory|cannot allocate|bad_alloc", re.I)
_PORT: Final = re.compile(r"couldn't bind|address already in use|bind failed", re.I)
_MODEL: Final = re.compile(
    r"error loading model(?! file)[^:]*: |unknown model architecture|unknown pre-tokenizer", re.I
)
_IMPORT: Final = re.compile(r"^(?:ImportError|ModuleNotFoundError|OSError): ")
_EMPTY: Final = re.compile(r"check the input params|exiting due to|^\s|^Traceback|^$")
"""Lines that say only that it failed."""
_CRASH: Final = "if nobody sent it, llama.cpp crashed; try another model file, or report it to llama.cpp"


@dataclass(frozen=True, slots=True)
class Started:
    """What an engine was started with, as far as it helps to name a failure."""

    model: str
    memory: int | None = None
    """Bytes that it needs, roughly."""
    free: int = 0
    """Bytes that were free."""
    address: str = ""
    """Where it was to listen, if that was fixed."""


def why_ended(status: int, lines: Sequence[str], started: Started, *, was_ready: bool) -> str:
    """The sentence for an engine that ended. `lines`: the last that it wrote."""
    when = "" if was_ready else " while it was starting"
    if status == -signal.SIGKILL:
        killed = f"the embedded engine was killed by signal 9{when}"
        if started.memory is not None and started.memory < started.free:
            return f"{killed}: somebody ended it, or the system did for lack of memory ({_need(started)})"
        return f"{killed}, probably for lack of memory: {_memory(started)}"
    if (line := _telling(lines, _MEMORY)) is not None:
        return f"the embedded engine ran out of memory{when} ({line}): {_memory(started)}"
    if (line := _telling(lines, _PORT)) is not None:
        where = started.address or "its port"
        return f"the embedded engine can't listen on {where} ({line}): stop what listens there, or use another port"
    if (line := _telling(lines, _MODEL)) is not None:
        return f"llama.cpp can't load {started.model!r}: {line}"
    if status < 0:
        return f"the embedded engine was killed by {_signal(-status)}{when}: {_CRASH}"
    line = _telling(lines, _IMPORT) or next((_shown(each) for each in reversed(lines) if not _EMPTY.search(each)), None)
    ended = f"the embedded engine ended with exit status {status}{when}"
    return f"{ended}: {line}" if line else f"{ended} and gave no reason"


def is_about_model(lines: Sequence[str]) -> bool:
    """Whether llama.cpp says that it can't load the model's file, so that another try gives the same."""
    return _telling(lines, _MEMORY) is None and _telling(lines, _MODEL) is not None


def _telling(lines: Sequence[str], pattern: re.Pattern[str]) -> str | None:
    """The first line that matches: later ones repeat what it says."""
    return next((_shown(line) for line in lines if pattern.search(line)), None)


def _shown(line: str) -> str:
    return escape_text(_STAMP.sub("", line).strip().removeprefix("error loading model: "), _SHOWN)


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _memory(started: Started) -> str:
    need = f"{_need(started)}; " if started.memory is not None else ""
    return f"{need}take a smaller model, lower engine.context, or give the gateway more memory"


def _need(started: Started) -> str:
    needed = "an unknown amount" if started.memory is None else show_bytes(started.memory)
    return f"{started.model!r} with this context needs about {needed}, {show_bytes(started.free)} are free"


_EXTRA = "install it with: pip install 'codec-gateway[embedded]'"
_LAST_WORDS = 50
_LINE = 1000
_REST_TIME = 1.0
"""Seconds for the rest of the log to arrive once the child has ended."""
_NO_TEMPLATE = (
    "the model's file has no chat template, so the engine uses ChatML, which may be plain text to this model: its "
    "answers may not end; name a template with engine.chat_template (--chat-template-file), or use a chat model"
)
_CACHE_MOST = 8192
"""Mebibytes: the default of llama.cpp's own server."""

log = get_logger("engine.embedded")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens; by default on a free port of this machine, with a key that only the gateway has."""

    host: str = "127.0.0.1"
    port: int = 0
    key: str | None = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


def embedded_model(config: EngineConfig) -> Path:
    """The model that the embedded engine loads: the configured file, else the packaged one. Raises `ConfigError`."""
    if config.model is None:
        return packaged_model()
    if not config.model.is_file():
        raise ConfigError(f"engine.model {str(config.model)!r} is not a file; name a GGUF file")
    return config.model


def slot_files_limit(config: EngineConfig) -> int:
    """Bytes that slot files may take, if there are any; by default as many as a host cache would."""
    if config.slot_files_bytes is not None:
        return config.slot_files_bytes
    return 1024 * 1024 * _cache_mib(replace(config, isolate=False))


def _cache_mib(config: EngineConfig) -> int:
    """Mebibytes of the host cache, for what slots held before: none if principals are kept apart."""
    if config.isolate:
        return 0
    return min(usable_mib() // 4, _CACHE_MOST) if config.cache_mib is None else config.cache_mib


def _lowered(config: EngineConfig, trained: int | None) -> str | None:
    """The warning that slots get less context than the settings say, as their model was trained on less."""
    wanted = config.context // config.slots
    if trained is None or wanted <= trained:
        return None
    return (
        f"the model has a context of {trained} tokens: each slot gets that, not {wanted} "
        f"(engine.context {config.context} / engine.slots {config.slots})"
    )


def _template(config: EngineConfig) -> str:
    """The text of the configured chat template; "": the model's own. Raises `ConfigError`."""
    if config.chat_template in (None, CHATML):
        return config.chat_template or ""
    try:
        return Path(config.chat_template).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"engine.chat_template {config.chat_template!r} can't be read: {error}") from error


def threads_of(config: EngineConfig) -> int:
    """Threads that it computes with; by default one less than there are cores, for the gateway and its tools."""
    return config.threads or max((os.cpu_count() or 1) - 1, 1)


def divided(config: EngineConfig, among: int) -> EngineConfig:
    """The settings of one of several embedded engines: they share the resources that each would take alone."""
    if config.kind != "embedded" or among < 2:
        return config
    return replace(
        config,
        threads=config.threads or max(threads_of(config) // among, 1),
        cache_mib=_cache_mib(config) // among if config.cache_mib is None else config.cache_mib,
        slot_files_bytes=slot_files_limit(config) // among
        if config.slot_files_bytes is None
        else config.slot_files_bytes,
    )


async def sound_model(config: EngineConfig) -> tuple[Path, ModelFacts]:
    """The model that the server loads, and the figures of its file; nothing is known that would keep it from starting.

    Raises `ConfigError` without the extra, and `ModelUnusable` when the file can't be loaded.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise ConfigError(f"engine.kind 'embedded' needs the package {PACKAGE}; {_EXTRA}")
    model = config.model or packaged_model()
    facts = await run_sync(examine_model, model)
    if facts.fault is not None:
        raise ModelUnusable(facts.fault)
    return model, facts


@asynccontextmanager
async def embedded_server(
    config: EngineConfig, listening: Listening | None = None, slot_files: Path | None = None
) -> AsyncGenerator["EmbeddedServer"]:
    """Start a server and wait until its model is loaded; end it with the context.

    Args:
        config: its settings.
        listening: where it listens; None: for this gateway alone, which names the slot of each request.
        slot_files: the directory in which slots are kept; with one there is no host cache.

    Raises what `sound_model` does, `ConfigError` without a library that llama.cpp needs, and `EngineUnavailable` when
    the server does not come up.
    """
    there = listening or Listening()
    model, facts = await sound_model(config)
    if (lowered := _lowered(config, facts.trained_context)) is not None:
        log.warning(lowered)
    template = await run_sync(_template, config)
    if not (template or facts.has_template):
        log.warning(_NO_TEMPLATE, model=model.name)
    address = f"{there.host}:{there.port}" if there.port else ""
    started = Started(model.name, facts.memory(config.context), usable_mib() * 1024 * 1024, address)
    settings = {
        "host": there.host,
        "port": there.port,
        "model": str(model),
        "context": config.context,
        "slots": config.slots,
        "threads": threads_of(config),
        "cache_mib": 0 if slot_files else _cache_mib(config),
        "chosen": listening is None or config.exclusive,
        **({"slot_files": str(slot_files)} if slot_files else {}),
        **({"template": template} if template else {}),
    }
    command = [sys.executable, "-m", "gateway.engine.embedded.child_process", json.dumps(settings)]
    # In a session of its own, so that Ctrl-C in the terminal reaches only the gateway, which drains and ends the child.
    failure: EngineUnavailable | ConfigError | None = None
    environment = {**os.environ, "CODEC_ENGINE_KEY": there.key or ""}
    async with (
        await anyio.open_process(command, start_new_session=True, env=environment) as process,
        anyio.create_task_group() as tasks,
    ):
        server = EmbeddedServer(process, there.key, started)
        tasks.start_soon(server.read_log)
        try:
            failure = await server.started(config.start_timeout)
            if failure is None:
                yield server
        finally:
            server.kill()
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


class EmbeddedServer:
    """A running child. `url` is set once its model is loaded."""

    def __init__(self, process: Process, key: str | None, started: Started) -> None:
        """`started`: what it was started with, to name a failure."""
        self._process = process
        self.key = key
        self._started = started
        self._words: deque[str] = deque(maxlen=_LAST_WORDS)
        self._all_read = anyio.Event()
        self.url = ""

    @property
    def pid(self) -> int:
        """Process id, for the log and for tests that kill it."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the child has not ended."""
        return self._process.returncode is None

    async def started(self, timeout: float) -> EngineUnavailable | ConfigError | None:
        """Wait up to `timeout` seconds for the address that the child prints when its model is loaded.

        Returns what went wrong instead of raising: it is called inside a task group.
        """
        with anyio.move_on_after(timeout):
            self.url = await _first_line(_piped(self._process.stdout))
            if self.url.startswith("http"):
                return None
            if self.url.startswith(UNUSABLE):
                return ConfigError(self.url)
            why = await self.ended(was_ready=False)
            return ModelUnusable(why) if is_about_model(self._words) else EngineUnavailable(why)
        return EngineUnavailable(
            f"the embedded engine did not load {self._started.model!r} within {timeout:g} s: raise engine.start_timeout"
        )

    def kill(self) -> None:
        """End the child at once; it holds nothing that needs saving."""
        if self.is_running:
            self._process.kill()

    async def ended(self, *, was_ready: bool = True) -> str:
        """Wait until the child has ended; returns the sentence that says why."""
        status = await self._process.wait()
        with anyio.move_on_after(_REST_TIME):
            await self._all_read.wait()
        return why_ended(status, self._words, self._started, was_ready=was_ready)

    async def read_log(self) -> None:
        """Pass the child's stderr to our log, line by line, and keep the last lines."""
        rest = b""
        async for data in _piped(self._process.stderr):
            *lines, rest = (rest + data).split(b"\n")
            self._note(lines)
            rest = rest[:_LINE]
        self._note([rest])
        self._all_read.set()

    def _note(self, lines: list[bytes]) -> None:
        for line in (each.decode("utf-8", "replace").rstrip()[:_LINE] for each in lines):
            if line:
                self._words.append(line)
                log.debug("engine log", line=line)


def _piped(stream: ByteReceiveStream | None) -> ByteReceiveStream:
    """A stream of the child: both are pipes."""
    return cast("ByteReceiveStream", stream)


async def _first_line(stream: ByteReceiveStream) -> str:
    received = b""
    async for part in stream:
        received += part
        if b"\n" in received:
            break
    return received.partition(b"\n")[0].decode("utf-8", "replace").strip()
