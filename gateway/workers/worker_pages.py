"""The admin port of a parent: the pages of its workers as one.

Turns a request into one to each worker, over its own Unix socket, and their answers into one page. A worker that does
not answer in time is reported as not ready, and holds up nobody.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.address import Origin
from gateway.http1.connection import Connection, LinkLost, NoAnswer
from gateway.observe.client_metrics import WorkerMetrics
from gateway.observe.metrics import Metrics
from gateway.serve.admin.admin_pages import FRESH, is_local, lead_to, not_local
from gateway.serve.admin.extra_pages import WithExtraPages, extra_page_paths
from gateway.serve.http.error_answers import error_response
from gateway.workers.handover import admin_socket
from gateway.workers.worker_restarts import Minder

# Counts are added up. Where all workers should report the same, the worst or the first report is taken.

WorkerReport = dict[str, Any]
Reports = Mapping[int, WorkerReport]
"""By worker number."""

_PROMPTS: Final = 20
_STATES: Final = ("down", "restarting", "starting", "idle", "up", "ready")
"""The worst comes first."""
_BREAKERS: Final = ("open", "half_open", "closed")
_ADDED: Final = ("sessions", "in_flight", "queued", "restarts", "answers")


def merge_readiness(reports: Reports, count: int, *, draining: bool) -> WorkerReport:
    """`/healthz/ready` of all workers: the gateway is ready as soon as one of them is. `reports`: from the workers that
    answered. `count`: how many workers there should be."""
    ready = not draining and any(report["ready"] for report in reports.values())
    reasons = [f"worker {number}: {reason}" for number, report in reports.items() for reason in report["reasons"]]
    reasons += [f"worker {number} does not answer" for number in range(count) if number not in reports]
    if draining:
        reasons.insert(0, "draining: the gateway is stopping")
    engines = [report["engine"] for report in reports.values() if "engine" in report]
    return {
        "ready": ready,
        "draining": draining,
        "components": _merge_by_key([report["components"] for report in reports.values()], all),
        "reasons": reasons,
        "workers": {"ready": sum(bool(report["ready"]) for report in reports.values()), "of": count},
        **{name: _details(name, list(reports.values())) for name in ("upstreams", "engines") if _any(name, reports)},
        **({"engine": _one(engines)} if engines else {}),
    }


def merge_status(reports: Sequence[WorkerReport], ready: WorkerReport, workers: Sequence[WorkerReport]) -> WorkerReport:
    """`/status` of all workers; at least one answered. `ready`: see `merge_readiness`; `workers`: a line for each."""
    first = reports[0]
    return {
        **first,
        "ready": ready["ready"],
        "reasons": ready["reasons"],
        "started": min(report["started"] for report in reports),
        "uptime": max(report["uptime"] for report in reports),
        "definition_advice": next((each for report in reports if (each := report["definition_advice"])), None),
        "servers": _by_name([report["servers"] for report in reports]),
        "engine": next((report["engine"] for report in reports if not report["engine"]["up"]), first["engine"]),
        "engines": _by_name([report["engines"] for report in reports]),
        "shared": next(
            (each for report in reports if (each := report["shared"]) and not each["up"]), first.get("shared")
        ),
        "shim": _merge_counts([report["shim"] for report in reports]),
        "prompt_tokens": _merge_counts([report["prompt_tokens"] for report in reports]),
        "tool_faults": _each_once([each for report in reports for each in report["tool_faults"]]),
        "prompts": _latest([each for report in reports for each in report["prompts"]]),
        "workers": list(workers),
    }


def _merge_by_key(values: Iterable[Mapping[str, Any]], join: Callable[[list[Any]], Any]) -> WorkerReport:
    found: dict[str, list[Any]] = {}
    for each in values:
        for name, value in each.items():
            found.setdefault(name, []).append(value)
    return {name: join(several) for name, several in found.items()}


def _each_once(faults: Sequence[WorkerReport]) -> list[WorkerReport]:
    return list({tuple(each.items()): each for each in faults}.values())


def _any(name: str, reports: Reports) -> bool:
    return any(name in report for report in reports.values())


def _details(name: str, reports: Sequence[WorkerReport]) -> WorkerReport:
    return _merge_by_key([report[name] for report in reports if name in report], _one)


def _by_name(lists: Sequence[Sequence[WorkerReport]]) -> list[WorkerReport]:
    """Merge lists of the same servers or engines into one, with one report for each."""
    return list(_merge_by_key([{each["name"]: each for each in several} for several in lists], _one).values())


def _one(several: Sequence[WorkerReport]) -> WorkerReport:
    worst = min(several, key=_standing)
    sums = {key: sum(each[key] for each in several) for key in _ADDED if key in worst}
    return {**worst, **sums}


def _standing(report: WorkerReport) -> tuple[int, int, bool]:
    state, breaker = report.get("state", "up"), report.get("breaker", "closed")
    return _STATES.index(state), _BREAKERS.index(breaker), bool(report.get("up", True))


def _merge_counts(several: Sequence[Any]) -> Any:
    """Add up numbers, however deeply nested. Of times take the earliest, of anything else the first."""
    first = several[0]
    if isinstance(first, Mapping):
        return _merge_by_key(several, _merge_counts)
    if isinstance(first, str):
        return min(several)
    return sum(several) if isinstance(first, int | float) and not isinstance(first, bool) else first


def _latest(prompts: Sequence[WorkerReport]) -> list[WorkerReport]:
    return sorted(prompts, key=lambda each: each["when"], reverse=True)[:_PROMPTS]


# What a worker counted stays in the sums after its end, as its last page said it, so that no counter ever falls. Gauges
# that are not amounts are not added up: `LEAST` and `MOST` name them.

LEAST: Final = frozenset(
    {
        *("codec_upstream_up", "codec_engine_up", "codec_pool_engine_up", "codec_shared_up"),
        *("process_start_time_seconds", "process_max_fds"),
    }
)
"""Metrics of which the smallest value is taken: a server is up if it is up for every worker."""
MOST: Final = frozenset({"codec_build_info", "codec_upstream_breaker", "codec_tool_definition_tokens"})
"""Metrics of which the largest value is taken."""

_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Family:
    name: str
    help: str
    kind: str
    samples: dict[_Key, float] = field(default_factory=dict[_Key, float])


Page = dict[str, _Family]


class Sums:
    """What all workers have counted."""

    def __init__(self) -> None:
        self._last: dict[int, Page] = {}
        """The last page of each running worker."""
        self._ended: Page = {}
        """What workers counted that have ended."""

    def update(self, worker: int, page: Page) -> None:
        """Take the current page of a worker."""
        self._last[worker] = page

    def ended(self, worker: int) -> None:
        """Note that a worker has ended; the next one with this number counts from zero."""
        if (page := self._last.pop(worker, None)) is not None:
            self._ended = _added([self._ended, _counted(page)])

    def render(self, answered: Iterable[int], own: str) -> bytes:
        """Return one page for all workers. `answered`: workers that have just answered. For the others, only counters
        are included, as they last were. `own`: another page to include."""
        now = set(answered)
        pages = [page if worker in now else _counted(page) for worker, page in self._last.items()]
        registry = CollectorRegistry()
        registry.register(_Collected(_added([*pages, read_page(own), self._ended])))
        return generate_latest(registry)


class _Collected(Collector):
    """Gives the families of a page to the library, which writes them."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def collect(self) -> Iterable[Metric]:
        for family in self._page.values():
            metric = Metric(family.name, family.help, family.kind)
            for (name, labels), value in family.samples.items():
                metric.add_sample(name, dict(labels), value)
            yield metric


def read_page(page: str) -> Page:
    """Parse a page in the exposition format. Takes about 30 µs a line: too long for an event loop with other work."""
    families: Page = {}
    for metric in text_string_to_metric_families(page):
        samples = {(each.name, tuple(sorted(each.labels.items()))): float(each.value) for each in metric.samples}
        families[metric.name] = _Family(metric.name, metric.documentation, metric.type, samples)
    return families


def _counted(page: Page) -> Page:
    """The page without gauges: only what never falls."""
    return {name: family for name, family in page.items() if family.kind in {"counter", "histogram"}}


def _added(pages: Iterable[Page]) -> Page:
    total: Page = {}
    for page in pages:
        for name, family in page.items():
            into = total.setdefault(name, _Family(name, family.help, family.kind)).samples
            join = _how(name)
            for key, value in family.samples.items():
                into[key] = join(into[key], value) if key in into else value
    return total


def _how(name: str) -> Callable[[float, float], float]:
    if name in LEAST:
        return min
    return max if name in MOST else float.__add__


_ANSWER_TIME: Final = 2.0
"""Seconds for a worker to answer."""
_MOST: Final = 64 * 1024 * 1024
"""Bytes of one page."""


class WorkerPages:
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
    return {
        "number": minder.number,
        "pid": minder.pid,
        "ready": report is not None and bool(report["ready"]),
        "uptime": None if report is None else report["uptime"],
        "restarts": minder.restarts,
    }
