"""One run of `codec-gateway bench`, from addresses to tallies: clients are made, the run is watched, Ctrl-C ends it.

It first asks each server for its models, so that a server that is not there is reported before anything is measured.
"""

import signal
from typing import Final

import anyio

from codec_bench.answer import AnswerFault
from codec_bench.client import Client
from codec_bench.command.progress import Progress
from codec_bench.exchange import Asking
from codec_bench.plan import Plan
from codec_bench.run import Run
from codec_bench.server import Server
from codec_bench.trace import Recorded
from codec_bench.workload import Workload
from gateway.errors import UpstreamUnavailable
from leaf_sdk.wire import Coding

_TOLD_EVERY: Final = 0.5


async def measure(
    servers: list[Server], workload: Workload, asking: Asking, plan: Plan, model: str | None, coding: Coding
) -> tuple[Run, list[str]]:
    """Run to the end; returns the finished run, and the model asked of each server. Raises `UpstreamUnavailable`."""
    clients = [Client(server, coding, plan.timeout) for server in servers]
    try:
        models = [model or await _model_of(client) for client in clients]
        times = workload.times if isinstance(workload, Recorded) and plan.rate is None and plan.clients == 1 else None
        run = Run(clients, models, workload, asking, plan, times)
        async with anyio.create_task_group() as group:
            group.start_soon(_end_on_signal, run)
            group.start_soon(_show_progress, run)
            await run.play()
            group.cancel_scope.cancel()
    finally:
        for client in clients:
            client.close()
    return run, models


async def _model_of(client: Client) -> str:
    try:
        return await client.model()
    except AnswerFault as fault:
        if fault.status in (401, 403):
            hint = "say with --key where its API key is"
        else:
            hint = "check that it serves OpenAI's API, or name a model with --model if it lists none"
        raise UpstreamUnavailable(f"{client.server.name} did not list its models: {fault}; {hint}", server="") from None


async def _end_on_signal(run: Run) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            run.stop()
            return


async def _show_progress(run: Run) -> None:
    progress = Progress()
    try:
        while True:
            answered = " ".join(str(len(tally.samples)) for tally in run.tallies)
            failed = sum(tally.failed for tally in run.tallies)
            errors = f", {failed} errors" if failed else ""
            words = f"{run.seconds:.0f} s: {answered} of {run.planned} answered{errors}"
            progress.tell("warming up" if run.warming else words)
            await anyio.sleep(_TOLD_EVERY)
    finally:
        progress.end()
