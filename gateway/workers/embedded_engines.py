"""The embedded engines of a gateway with several workers. The parent runs them; each worker has slots of its own there.

Turns settings that name an embedded engine into its process, which is started again whenever it ends. To a worker it is
a server at a URL, some of whose slots are this worker's alone (`engine.own_slots`). The address and the key are in a
file in the parent's directory, which nobody else may enter.
"""

import json
import random
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

import anyio
from anyio.abc import TaskStatus

from gateway.config.gateway_config import EngineConfig, GatewayConfig
from gateway.config.replicas import WorkerConfig, fault_file
from gateway.engine.embedded.engine_process import Listening, divided, embedded_model, embedded_server
from gateway.engine.embedded.model_file import ModelFile
from gateway.engine.start.engine_health import STEADY, Outage, until_file_changes
from gateway.errors import ConfigError, EngineError, EngineUnavailable, ModelUnusable
from gateway.observe.logs import get_logger
from gateway.proxy.upstream.supervision.lifecycle import Backoff

_FILE: Final = "engines.json"
_ALONE: Final = "or set serve.workers to 1"

log = get_logger("workers")


@dataclass(frozen=True, slots=True)
class _EngineAddress:
    url: str
    key: str = field(repr=False)


def check_engines(config: GatewayConfig, count: int) -> None:
    """Raise `ConfigError` where this number of workers can't share an engine."""
    for name, engine in config.members.items():
        _check(name, engine, count)


def _check(name: str, engine: EngineConfig, count: int) -> None:
    if engine.exclusive:
        raise ConfigError(
            f"{name!r} is exclusive, but several workers would generate with it, and none would know what the others "
            f"have put into its slots: remove 'exclusive', {_ALONE}"
        )
    if engine.kind != "embedded":
        return
    if engine.slots < count:
        raise ConfigError(
            f"{name!r} is an embedded engine of {engine.slots} slots, and each of {count} workers needs a slot of "
            f"its own: set its 'slots' to {count} or more, or serve.workers to {engine.slots} or less"
        )
    if engine.slot_files not in {"auto", "off"}:
        raise ConfigError(
            f"{name!r} keeps its slots in {engine.slot_files!r}, a directory that only one process can use: remove "
            f"'slot_files', {_ALONE}"
        )


def share_of(slots: int, worker: WorkerConfig) -> str:
    """The slots of one worker, in the form of `engine.own_slots`."""
    first, following = (slots * number // worker.count for number in (worker.number, worker.number + 1))
    return f"{first}-{following - 1}"


def with_hosted_engines(config: GatewayConfig, worker: WorkerConfig) -> GatewayConfig:
    """This worker's settings, with embedded engines as servers. Raises `ConfigError` for one the parent doesn't run."""
    if not any(each.kind == "embedded" for each in config.members.values()):
        return config
    addresses = {
        name: _EngineAddress(**address) for name, address in json.loads((worker.folder / _FILE).read_text()).items()
    }
    members = {name: _hosted(name, each, addresses, worker) for name, each in config.members.items()}
    return replace(config, engines=members) if config.engines else replace(config, engine=members["engine"])


def _hosted(
    name: str, engine: EngineConfig, addresses: Mapping[str, _EngineAddress], worker: WorkerConfig
) -> EngineConfig:
    if engine.kind != "embedded":
        return engine
    if name not in addresses:
        raise ConfigError(f"{name!r} became an embedded engine after the gateway was started: restart the gateway")
    return replace(
        engine,
        kind="url",
        api="llama_cpp",
        url=addresses[name].url,
        api_key=addresses[name].key,
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
        addresses = {
            name: await tasks.start(_keep, name, divided(engine, len(embedded)), backoff, fault_file(folder, name))
            for name, engine in embedded.items()
        }
        _write(folder / _FILE, addresses)
        yield
        tasks.cancel_scope.cancel()


async def _keep(
    name: str, engine: EngineConfig, backoff: Backoff, fault: Path, *, task_status: TaskStatus[_EngineAddress]
) -> None:
    """Keep an engine running. Tells `task_status` where it is once it has come up, or failed to.

    `fault`: the file in which the workers find why it is not up.
    """
    # Each worker says which slot it generates in, as a gateway does that has an engine to itself.
    engine, failures, there = replace(engine, exclusive=True), 0, Listening()
    file, outage = ModelFile(engine), Outage(name)
    while True:
        before = await file.stamp()
        failure: EngineError
        try:
            async with embedded_server(engine, there) as server:
                _publish(fault, None)
                outage.recovered()
                log.info("engine started", engine=name, pid=server.pid, slots=engine.slots)
                if not there.port:
                    there = replace(there, port=int(server.url.rpartition(":")[2]))
                    task_status.started(_address(there))
                since = monotonic()
                failure = EngineUnavailable(await server.ended())
                failures = 0 if monotonic() - since >= STEADY else failures
        except ModelUnusable as error:
            failure = until_file_changes(error)
        except EngineUnavailable as error:
            failure = error
        _publish(fault, failure)
        outage.failed(failure, monotonic())
        if not there.port:
            there = replace(there, port=_free_port(there.host))
            task_status.started(_address(there))
        failures += 1
        # Not a secret: the roll only spreads restarts over time.
        pause = inf if isinstance(failure, ModelUnusable) else backoff.pause(failures, random.random())  # noqa: S311
        with anyio.move_on_after(pause):
            await file.until_changed(before)


def _publish(fault: Path, failure: EngineError | None) -> None:
    """Tell the workers why the engine is not up; None: it is."""
    if failure is None:
        fault.unlink(missing_ok=True)
        return
    # Renamed, so that no worker reads half a sentence.
    fault.with_suffix(".new").write_text(failure.message, encoding="utf-8")
    fault.with_suffix(".new").replace(fault)


def _address(there: Listening) -> _EngineAddress:
    """The engine's address, the same at each of its starts, since workers are told only once."""
    return _EngineAddress(f"http://{there.host}:{there.port}", there.key or "")


def _free_port(host: str) -> int:
    """A port for an engine that has not come up yet. llama.cpp's server can't listen on one that is held for it."""
    with socket.socket() as bound:
        bound.bind((host, 0))
        return bound.getsockname()[1]


def _write(path: Path, addresses: Mapping[str, _EngineAddress]) -> None:
    path.touch(mode=0o600)
    path.write_text(json.dumps({name: asdict(address) for name, address in addresses.items()}), encoding="utf-8")
