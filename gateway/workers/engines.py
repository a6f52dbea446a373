"""The embedded engines of a gateway with several workers. The parent runs them; each worker has slots of its own there.

Turns settings that name an embedded engine into its process, which is started again whenever it ends. To a worker it is
a server at a URL, some of whose slots are this worker's alone (`engine.own_slots`). The address and the key stand in a
file in the parent's directory, which nobody else may enter.
"""

import json
import random
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskStatus

from gateway.config.model import EngineConfig, GatewayConfig
from gateway.config.worker import WorkerConfig
from gateway.engine.embedded import Listening, divided, embedded_model, embedded_server
from gateway.errors import ConfigError, EngineUnavailable
from gateway.observe.logs import get_logger
from gateway.proxy.upstream.lifecycle import Backoff

_FILE: Final = "engines.json"
_ALONE: Final = "or set serve.workers to 1"

log = get_logger("workers")


@dataclass(frozen=True, slots=True)
class _Place:
    """The address and the key of an engine."""

    url: str
    key: str = field(repr=False)


def check_engines(config: GatewayConfig, count: int) -> None:
    """Raise `ConfigError` where this number of workers can't share an engine."""
    for name, engine in config.members.items():
        _check(name, engine, count)


def _check(name: str, engine: EngineConfig, count: int) -> None:
    if engine.exclusive:
        raise ConfigError(
            f"{name!r} is set to be exclusive, but with several workers several generate with it, each with its own "
            f"idea of what its slots hold: remove 'exclusive', {_ALONE}"
        )
    if engine.kind != "embedded":
        return
    if engine.slots < count:
        raise ConfigError(
            f"{name!r} is an embedded engine of {engine.slots} slots, and each of {count} workers needs one of its "
            f"own: set its 'slots' to {count} or more, or serve.workers to {engine.slots} or less"
        )
    if engine.slot_files not in {"auto", "off"}:
        raise ConfigError(
            f"{name!r} keeps its slots in {engine.slot_files!r}, which only one process can: remove 'slot_files', "
            f"{_ALONE}"
        )


def share_of(slots: int, worker: WorkerConfig) -> str:
    """The slots of one worker, as `engine.own_slots` says it."""
    first, following = (slots * number // worker.count for number in (worker.number, worker.number + 1))
    return f"{first}-{following - 1}"


def with_hosted_engines(config: GatewayConfig, worker: WorkerConfig) -> GatewayConfig:
    """The settings as they are for this worker. Raises `ConfigError` for an engine that the parent does not run."""
    if not any(each.kind == "embedded" for each in config.members.values()):
        return config
    places = {name: _Place(**place) for name, place in json.loads((worker.folder / _FILE).read_text()).items()}
    members = {name: _hosted(name, each, places, worker) for name, each in config.members.items()}
    return replace(config, engines=members) if config.engines else replace(config, engine=members["engine"])


def _hosted(name: str, engine: EngineConfig, places: Mapping[str, _Place], worker: WorkerConfig) -> EngineConfig:
    if engine.kind != "embedded":
        return engine
    if name not in places:
        raise ConfigError(f"{name!r} is an embedded engine since the gateway was started: start the gateway again")
    return replace(
        engine,
        kind="url",
        api="llama_cpp",
        url=places[name].url,
        api_key=places[name].key,
        model=embedded_model(engine),
        own_slots=share_of(engine.slots, worker),
        slot_files="off",
    )


@asynccontextmanager
async def running_engines(config: GatewayConfig, folder: Path) -> AsyncGenerator[None]:
    """Run the embedded engines for as long as the context lasts. It is entered once each has come up, or failed to.

    Raises `ConfigError` for settings that can't work.
    """
    embedded = {name: each for name, each in config.members.items() if each.kind == "embedded"}
    backoff = Backoff(config.limits.restart_backoff, config.limits.restart_backoff_max)
    async with anyio.create_task_group() as tasks:
        places = {
            name: await tasks.start(_keep, name, divided(engine, len(embedded)), backoff)
            for name, engine in embedded.items()
        }
        _write(folder / _FILE, places)
        yield
        tasks.cancel_scope.cancel()


async def _keep(name: str, engine: EngineConfig, backoff: Backoff, *, task_status: TaskStatus[_Place]) -> None:
    """Keep an engine running. Tells `task_status` where it is once it has come up, or failed to."""
    # Its slots are named by whoever generates, as those of an engine that is one gateway's alone.
    engine, failures, there = replace(engine, exclusive=True), 0, Listening()
    while True:
        try:
            async with embedded_server(engine, there) as server:
                log.info("engine started", engine=name, pid=server.pid, slots=engine.slots)
                if not there.port:
                    there = replace(there, port=int(server.url.rpartition(":")[2]))
                    task_status.started(_place(there))
                failures = 0
                cause = f"it ended with exit status {await server.wait()}"
        except EngineUnavailable as error:
            cause = error.message
        log.warning("the embedded engine is down and is started again", engine=name, cause=cause)
        if not there.port:
            there = replace(there, port=_free_port(there.host))
            task_status.started(_place(there))
        failures += 1
        # Not a secret: the roll only spreads restarts over time.
        await anyio.sleep(backoff.pause(failures, random.random()))  # noqa: S311


def _place(there: Listening) -> _Place:
    """The same at each start of the engine, since workers are told only once."""
    return _Place(f"http://{there.host}:{there.port}", there.key or "")


def _free_port(host: str) -> int:
    """A port for an engine that has not come up yet. llama.cpp's server can't listen on one that is held for it."""
    with socket.socket() as bound:
        bound.bind((host, 0))
        return bound.getsockname()[1]


def _write(path: Path, places: Mapping[str, _Place]) -> None:
    path.touch(mode=0o600)
    path.write_text(json.dumps({name: asdict(place) for name, place in places.items()}), encoding="utf-8")
