"""The admin port of a parent: the pages of its workers as one.

Turns a request into one to each worker, over its own Unix socket, and their answers into one page. A worker that does
not answer in time is reported as not ready, and holds up nobody.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http1.connection import Connection
from gateway.http1.faults import LinkLost, NoAnswer
from gateway.http1.origin import Origin
from gateway.observe.metrics import Metrics
from gateway.observe.worker_metrics import WorkerMetrics
from gateway.serve.admin.extra_pages import WithExtraPages, extra_page_paths
from gateway.serve.admin.health import FRESH, is_local, lead_to, not_local
from gateway.serve.http.errors import error_response
from gateway.workers.folder import admin_socket
from gateway.workers.merged import merge_readiness, merge_status
from gateway.workers.minder import Minder
from gateway.workers.sums import Sums, read_page

_ANSWER_TIME: Final = 2.0
"""Seconds for a worker to answer."""
_MOST: Final = 64 * 1024 * 1024
"""Bytes of one page."""


class Pages:
    """Asks the workers, and merges their answers."""

    def __init__(self, minders: Sequence[Minder], folder: Path, metrics: WorkerMetrics, sums: Sums) -> None:
        """`sums` keeps what the workers counted."""
        self._minders = minders
        self._folder = folder
        self._metrics = metrics
        self._sums = sums
        self._draining = False

    def drain(self) -> None:
        """From now on, report that the gateway is stopping."""
        self._draining = True

    def app(self) -> ASGIApp:
        """The application, with the same paths as the admin port of a single process."""
        extra = extra_page_paths()
        own = Starlette(
            routes=[
                Route("/metrics", self._show_metrics),
                Route("/healthz/live", self._show_live),
                Route("/healthz/ready", self._show_ready),
                Route("/status", self._show_status),
                lead_to(extra[0] if extra else "/status"),
            ]
        )
        return WithExtraPages(own, dict.fromkeys(extra, _of_one_process))

    async def _show_metrics(self, _request: Request) -> Response:
        pages = await self._ask("/metrics")
        for number, page in pages.items():
            # In a thread: this loop passes on the lines of servers over stdio.
            self._sums.update(number, await to_thread.run_sync(read_page, page.decode()))
        return Response(self._sums.render(pages, self._metrics.render()), media_type=Metrics.content_type)

    async def _show_live(self, _request: Request) -> Response:
        return JSONResponse({"live": True}, headers=FRESH)

    async def _show_ready(self, _request: Request) -> Response:
        report = await self._readiness()
        return JSONResponse(report, status_code=200 if report["ready"] else 503, headers=FRESH)

    async def _show_status(self, request: Request) -> Response:
        if not is_local(request):
            return not_local()
        reports = {number: json.loads(page) for number, page in (await self._ask("/status")).items()}
        if not reports:
            return error_response(503, "no worker answers: the log says why", code="no_worker")
        workers = [_line(each, reports.get(each.number)) for each in self._minders]
        return JSONResponse(merge_status(list(reports.values()), await self._readiness(), workers), headers=FRESH)

    async def _readiness(self) -> dict[str, Any]:
        reports = {number: json.loads(page) for number, page in (await self._ask("/healthz/ready")).items()}
        return merge_readiness(reports, len(self._minders), draining=self._draining)

    async def _ask(self, path: str) -> dict[int, bytes]:
        """The answers of the workers that gave one, in the order of their numbers."""
        answers: dict[int, bytes] = {}

        async def ask(number: int) -> None:
            if (answer := await _page(admin_socket(self._folder, number), path)) is not None:
                answers[number] = answer

        async with anyio.create_task_group() as asking:
            for each in self._minders:
                if each.ready:
                    asking.start_soon(ask, each.number)
        return dict(sorted(answers.items()))


async def _of_one_process(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse: each worker has its own conversations, and a page with those of one would be mistaken for all of them."""
    page = scope["path"].split("/")[1]
    words = (
        f"the {page} can show only one process, and this gateway runs several workers: serve with --workers 1, or "
        f"also run a second gateway with one worker and the same files on other ports, and use its {page}"
    )
    await error_response(501, words, code="pages_of_one_process")(scope, receive, send)


async def _page(there: Path, path: str) -> bytes | None:
    """One page of one worker."""
    loop = asyncio.get_running_loop()

    def soon(write: Callable[[bytes], None], request: bytes) -> None:
        loop.call_soon(write, request)

    connection = Connection(Origin(False, str(there), 0), soon)
    try:
        with anyio.fail_after(_ANSWER_TIME):
            await loop.create_unix_connection(lambda: connection, str(there))
            try:
                connection.send("GET", path, b"host: localhost\r\n", b"")
                await connection.head()
                return await connection.read(_MOST)
            finally:
                connection.close()
    except (OSError, LinkLost, NoAnswer):
        return None


def _line(minder: Minder, report: dict[str, Any] | None) -> dict[str, Any]:
    """The line of one worker in `/status`."""
    return {
        "number": minder.number,
        "pid": minder.pid,
        "ready": report is not None and bool(report["ready"]),
        "uptime": None if report is None else report["uptime"],
        "restarts": minder.restarts,
    }
