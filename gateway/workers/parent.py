"""The parent of several workers: it binds the sockets, starts the workers, keeps them running, and ends with them.

It serves only the admin port, and runs what exists once for all workers: servers over stdio (`stdio/`) and embedded
engines (`embedded_engines.py`). A signal to the parent acts on all workers as on one process (`app/role.py`).
"""

import math
import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio.abc import TaskGroup

from gateway.app.options import ServeOptions
from gateway.app.process import admin_connections
from gateway.app.role import ALONE, Shutdown
from gateway.config.gateway_config import GatewayConfig
from gateway.config.replicas import SERVERS
from gateway.config.tables import MOST_WORKERS
from gateway.observe.client_metrics import WorkerMetrics
from gateway.observe.logs import get_logger
from gateway.proxy.upstream.supervision.lifecycle import Backoff
from gateway.serve.auth.gateway_token import guard_admin
from gateway.serve.http.http_server import http_server, raise_soft_limit, url_of_socket
from gateway.workers.embedded_engines import check_engines, running_engines
from gateway.workers.handover import socket_folder
from gateway.workers.stdio.shared_process import StdioHost
from gateway.workers.worker_pages import Sums, WorkerPages
from gateway.workers.worker_restarts import LoopbackPorts, Minder, WorkerPlan, started

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""A container's CPU limit: microseconds of CPU time, and the period in microseconds."""


def count_of(workers: int | Literal["auto"]) -> int:
    """The number of workers that a setting stands for on this machine."""
    if workers != "auto":
        return workers
    try:
        quota = _QUOTA.read_text()
    except OSError:
        quota = "max"
    return cores(len(os.sched_getaffinity(0)), quota)


def cores(usable: int, quota: str) -> int:
    """The number of cores that are worth a process each. `quota`: the text of a control group's `cpu.max`."""
    allowed, _, period = quota.strip().partition(" ")
    if allowed.isdecimal() and period.isdecimal() and int(period):
        usable = min(usable, math.ceil(int(allowed) / int(period)))
    return max(1, min(usable, MOST_WORKERS))


_LATE: Final = 15.0
"""Seconds that a worker may take to end once the time for its running requests is over. One that hangs never ends."""

log = get_logger("workers")


async def run_workers(config: GatewayConfig, options: ServeOptions) -> None:
    """Serve with several processes until SIGINT or SIGTERM, then drain them all.

    Raises `ConfigError` when a port is taken or a setting can't work, `GatewayError` when a worker ends before it was
    ever ready, and KeyboardInterrupt when Ctrl-C is pressed before all are ready.
    """
    check_engines(config, count_of(config.serve.workers))
    # The parent holds the pipes of servers' processes and the sockets of all workers.
    raise_soft_limit()
    minders: list[Minder] = []

    def reload() -> None:
        for each in minders:
            each.order("reload")

    shutdown = Shutdown(anyio.CancelScope(), reload)
    with shutdown.scope:
        async with anyio.create_task_group() as tasks:
            await tasks.start(shutdown.watch)
            await _run(config, options, shutdown, minders)
            tasks.cancel_scope.cancel()
    if shutdown.interrupted:
        raise KeyboardInterrupt


async def _run(config: GatewayConfig, options: ServeOptions, shutdown: Shutdown, minders: list[Minder]) -> None:
    async with AsyncExitStack() as stack:
        sockets = stack.enter_context(ALONE.listening(config.serve))
        plan = _plan(config, options, sockets.faces, stack)
        await stack.enter_async_context(running_engines(config, plan.folder))
        await stack.enter_async_context(StdioHost().listening(plan.folder / SERVERS))
        metrics, sums = WorkerMetrics(), Sums()
        minders += _minders(config, plan, metrics, sums)
        pages = WorkerPages(minders, plan.folder, metrics, sums)
        admin = http_server(
            guard_admin(pages.app(), config.serve), admin_connections(config.serve, metrics.connections)
        )

        async def drain() -> None:
            pages.drain()
            # The workers stop listening too: a client that connects now is refused at once, and can go elsewhere.
            sockets.faces.close()
            for each in minders:
                each.stop()
            await anyio.sleep(config.limits.drain + _LATE)
            log.warning("ending the workers that did not end in time", workers=[m.number for m in minders if m.pid])
            shutdown.end()

        async with anyio.create_task_group() as serving:
            async with anyio.create_task_group() as minding:
                await _start_all(minders, minding)
                shutdown.ready(drain)
                serving.start_soon(admin.serve, [sockets.admin])
                urls = {
                    "url": url_of_socket(config.serve.host, sockets.faces),
                    "admin": url_of_socket(config.serve.admin_host, sockets.admin),
                }
                log.info("gateway ready", **urls, workers=plan.count)
            log.info("all workers have ended")
            admin.should_exit = True


def _minders(config: GatewayConfig, plan: WorkerPlan, metrics: WorkerMetrics, sums: Sums) -> list[Minder]:
    def restarted(number: int) -> None:
        sums.ended(number)
        metrics.restarts.inc()

    backoff = Backoff(config.limits.restart_backoff, config.limits.restart_backoff_max)
    minders = [Minder(number, partial(started, plan), backoff, restarted) for number in range(plan.count)]
    metrics.running.set_function(lambda: sum(each.ready for each in minders))
    return minders


async def _start_all(minders: Sequence[Minder], minding: TaskGroup) -> None:
    """Start all workers and wait until each is ready. Raises `GatewayError`, in a group, if one fails."""
    async with anyio.create_task_group() as starting:
        for each in minders:
            starting.start_soon(minding.start, each.keep)


def _plan(config: GatewayConfig, options: ServeOptions, faces: socket.socket, stack: AsyncExitStack) -> WorkerPlan:
    """Make the plan that workers are started from. What it needs stays open as long as `stack` does."""
    count = count_of(config.serve.workers)
    folder = stack.enter_context(socket_folder())
    if config.replicas.address is None:
        ports = stack.enter_context(LoopbackPorts(count))
        return WorkerPlan(options, count, folder, faces, ports.addresses, ports, secrets.token_hex(32).encode())
    peers = [replace(config.replicas, port=config.replicas.port + number).named for number in range(count)]
    return WorkerPlan(options, count, folder, faces, tuple(peers), None, b"")
