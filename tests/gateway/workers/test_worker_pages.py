"""The admin port of several workers: each is asked over its socket, and one that does not answer holds up nobody."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from gateway.observe.client_metrics import WorkerMetrics
from gateway.workers.handover import admin_socket
from gateway.workers.worker_pages import Sums, WorkerPages, merge_readiness, merge_status
from tests.cases import each_of
from tests.gateway.workers.standin_workers import COUNTED, READY, answering
from tests.gateway.workers.test_merged import ready, server, status

pytestmark = pytest.mark.anyio


@dataclass
class Known:
    """What the parent knows of a worker."""

    number: int
    ready: bool = True
    restarts: int = 0
    pid: int | None = 70


class Site:
    """The pages of three workers, the last of which is not ready."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.minders: list[Any] = [Known(0), Known(1, restarts=2), Known(2, ready=False, pid=None)]
        self.metrics = WorkerMetrics()
        self.pages = WorkerPages(self.minders, folder, self.metrics, Sums())

    async def get(self, path: str, peer: str = "127.0.0.1") -> httpx2.Response:
        transport = httpx2.ASGITransport(app=self.pages.app(), client=(peer, 5000))
        with anyio.fail_after(20):
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                return await http.get(path)

    @asynccontextmanager
    async def workers(self, *pages: dict[str, Any]) -> AsyncGenerator[list[list[str]]]:
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(answering(self.folder, number, each))
                for number, each in enumerate(pages)
            ]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_workers_that_are_ready_are_asked_and_the_others_are_named(site: Site) -> None:
    async with site.workers(*({"/healthz/ready": READY} for _ in range(3))) as asked:
        answer = await site.get("/healthz/ready")

    assert asked == [["/healthz/ready"], ["/healthz/ready"], []]
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert answer.json()["workers"] == {"ready": 2, "of": 3}
    assert answer.json()["reasons"] == ["worker 2 does not answer"]


async def test_worker_that_hangs_breaks_off_or_is_away_holds_up_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.workers.worker_pages._ANSWER_TIME", 0.1)
    site.minders[2].ready = True
    async with site.workers({"/healthz/ready": None}, {"/healthz/ready": READY}):
        hangs = await site.get("/healthz/ready")
    nobody = await site.get("/healthz/ready")

    assert hangs.json()["reasons"] == ["worker 0 does not answer", "worker 2 does not answer"]
    assert (nobody.status_code, nobody.json()["ready"], nobody.json()["workers"]["ready"]) == (503, False, 0)


async def test_gateway_that_stops_is_not_ready(site: Site) -> None:
    async with site.workers({"/healthz/ready": READY}):
        site.pages.drain()
        answer = await site.get("/healthz/ready")

    assert answer.status_code == 503
    assert answer.json()["reasons"][0] == "draining: the gateway is stopping"
    assert (await site.get("/healthz/live")).json() == {"live": True}


async def test_status_has_a_line_for_each_worker_and_is_for_this_machine(site: Site) -> None:
    one, other = ({"/status": status(number), "/healthz/ready": READY} for number in range(2))
    async with site.workers(one, other):
        answer = await site.get("/status")
        elsewhere = await site.get("/status", peer="10.0.0.9")
    nobody = await site.get("/status")

    report = answer.json()
    assert (report["version"], report["ready"], answer.headers["cache-control"]) == ("1", True, "no-store")
    assert report["workers"] == [
        {"number": 0, "pid": 70, "ready": True, "uptime": 10.0, "restarts": 0},
        {"number": 1, "pid": 70, "ready": True, "uptime": 9.0, "restarts": 2},
        {"number": 2, "pid": None, "ready": False, "uptime": None, "restarts": 0},
    ]
    assert (elsewhere.status_code, nobody.status_code) == (403, 503)
    assert nobody.json()["error"]["code"] == "no_worker"


async def test_metrics_are_those_of_all_workers_and_of_the_parent(site: Site) -> None:
    site.metrics.restarts.inc()
    async with site.workers({"/metrics": COUNTED.format(3)}, {"/metrics": COUNTED.format(4)}):
        page = await site.get("/metrics")

    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "codec_calls_total 7.0" in page.text
    assert "codec_worker_restarts_total 1.0" in page.text


async def test_pages_that_show_one_process_say_how_to_have_them(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.workers.worker_pages.extra_page_paths", lambda: ["/console", "/other"])
    first = await site.get("/")
    console = await site.get("/console/answers")
    monkeypatch.setattr("gateway.workers.worker_pages.extra_page_paths", list)

    assert (first.status_code, first.headers["location"]) == (303, "/console")
    assert (console.status_code, console.json()["error"]["code"]) == (501, "pages_of_one_process")
    assert console.json()["error"]["message"].startswith("the console can show only one process")
    assert (await site.get("/")).headers["location"] == "/status"


def test_readiness_counts_workers_that_are_ready_and_shows_engines() -> None:
    one = ready(engine={"state": "ready"}, engines={"e": {"up": True, "state": "ready", "answers": 2}})
    other = ready(ok=False, engine={"state": "down"}, engines={"e": {"up": False, "state": "down", "answers": 1}})
    merged = merge_readiness({0: one, 1: other}, 2, draining=False)

    assert merged["workers"] == {"ready": 1, "of": 2}
    assert merged["engine"] == {"state": "down"}
    assert merged["engines"] == {"e": {"up": False, "state": "down", "answers": 3}}
    assert not {"engine", "engines", "upstreams"} & merge_readiness({0: ready()}, 1, draining=False).keys()


def test_status_is_that_of_the_first_worker_where_all_should_say_the_same() -> None:
    prompts = [{"when": f"2026-01-01T00:{number:02}:00"} for number in range(15)]
    later = [{"when": f"2026-01-02T00:{number:02}:00"} for number in range(15)]
    one = status(
        0, version="1", prompts=prompts, shared={"up": True}, shim={"on": True, "no": None, "calls": 1, "seconds": 0.5}
    )
    other = status(
        1, version="2", prompts=later, shared=None, shim={"on": False, "no": None, "calls": 2, "seconds": 0.25}
    )
    merged = merge_status([one, other], {"ready": False, "reasons": ["x"]}, [])

    assert (merged["version"], merged["ready"], merged["reasons"]) == ("1", False, ["x"])
    assert merged["shared"] == {"up": True}
    assert json.dumps(merged["shim"]) == '{"on": true, "no": null, "calls": 3, "seconds": 0.75}'
    assert merged["prompts"] == [*reversed(later), *list(reversed(prompts))[:5]]


@each_of(
    ("better", "worse"),
    [
        ({"state": "restarting"}, {"state": "down"}),
        ({"state": "starting"}, {"state": "restarting"}),
        ({"state": "idle"}, {"state": "starting"}),
        ({"state": "up"}, {"state": "idle"}),
        ({"state": "ready"}, {"state": "up"}),
        ({"breaker": "half_open"}, {"breaker": "open"}),
        ({"breaker": "closed"}, {"breaker": "half_open"}),
        ({"state": "up", "breaker": "open"}, {"state": "down", "breaker": "closed"}),
        ({"up": True}, {"up": False}),
    ],
)
def test_server_is_shown_by_the_worker_for_which_it_stands_worst(better: dict[str, Any], worse: dict[str, Any]) -> None:
    reports = [
        status(number, servers=[server("a", mark=mark, **each)])
        for number, (mark, each) in enumerate((("better", better), ("worse", worse)))
    ]

    assert merge_status(reports, ready(), [])["servers"][0]["mark"] == "worse"
    assert merge_status(reports[::-1], ready(), [])["servers"][0]["mark"] == "worse"


def test_socket_of_each_worker_is_its_own(tmp_path: Path) -> None:
    assert admin_socket(tmp_path, 1) != admin_socket(tmp_path, 2)
