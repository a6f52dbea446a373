"""The admin port: what a probe and a scraper get."""

import httpx2
import pytest

from gateway.observe.metrics import Metrics
from gateway.serve.admin.admin_pages import Readiness, admin_app

pytestmark = pytest.mark.anyio


async def get(metrics: Metrics, readiness: Readiness, path: str, method: str = "GET") -> httpx2.Response:
    transport = httpx2.ASGITransport(app=admin_app(metrics, readiness))
    async with httpx2.AsyncClient(transport=transport, base_url="http://admin") as client:
        return await client.request(method, path)


async def test_metrics_are_served_as_prometheus_text() -> None:
    metrics = Metrics()
    metrics.tool_called("time", "ok", 0.1)

    response = await get(metrics, Readiness(), "/metrics")

    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'codec_tool_calls_total{outcome="ok",server="time"} 1.0' in response.text


@pytest.mark.parametrize(("options", "page"), [({}, "/status"), ({"first_page": "/pages"}, "/pages")])
async def test_bare_address_leads_to_the_page_for_people(options, page) -> None:
    app = admin_app(Metrics(), Readiness(), **options)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1") as http:
        response = await http.get("/")

    assert (response.status_code, response.headers["location"]) == (303, page)


async def test_path_of_the_other_port_is_refused_with_where_it_is() -> None:
    answer = await get(Metrics(), Readiness(), "/mcp", "POST")

    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == (
        "POST /mcp is not served on the admin port; /mcp and /v1 are on the gateway's own (serve.port)"
    )


async def test_live_is_200_whatever_the_parts_say() -> None:
    readiness = Readiness()
    readiness.set("engine", False, "gone")
    readiness.drain()

    response = await get(Metrics(), readiness, "/healthz/live")

    assert (response.status_code, response.json()) == (200, {"live": True})


async def test_nothing_is_ready_before_a_part_has_reported() -> None:
    response = await get(Metrics(), Readiness(), "/healthz/ready")

    assert response.status_code == 503
    assert response.json()["reasons"] == ["starting: no part has reported yet"]


async def test_ready_when_every_part_is_well() -> None:
    readiness = Readiness()
    readiness.set("engine", True)
    readiness.set("upstreams", True)

    response = await get(Metrics(), readiness, "/healthz/ready")

    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    assert response.json() == {
        "ready": True,
        "draining": False,
        "components": {"engine": True, "upstreams": True},
        "reasons": [],
    }


async def test_details_are_shown_as_they_are_now_and_make_nobody_unready() -> None:
    readiness, states = Readiness(), {"time": "up"}
    readiness.set("engine", True)
    readiness.inform("upstreams", lambda: dict(states))
    states["time"] = "restarting"

    response = await get(Metrics(), readiness, "/healthz/ready")

    assert response.status_code == 200
    assert response.json()["upstreams"] == {"time": "restarting"}


async def test_part_that_fails_gives_503_with_its_reason_until_it_recovers() -> None:
    readiness = Readiness()
    readiness.set("engine", True)
    readiness.set("map", False, "differs at 'héllo'\n\x1b[31m")

    response = await get(Metrics(), readiness, "/healthz/ready")
    assert response.status_code == 503
    assert response.json()["reasons"] == [r"map: differs at 'héllo'\n\x1b[31m"]

    readiness.set("map", True, "a reason is not kept when all is well")
    assert (await get(Metrics(), readiness, "/healthz/ready")).status_code == 200
    assert readiness.report()["reasons"] == []


async def test_draining_gateway_is_not_ready_any_more() -> None:
    readiness = Readiness()
    readiness.set("engine", True)
    readiness.drain()
    readiness.set("engine", True)

    response = await get(Metrics(), readiness, "/healthz/ready")

    assert response.status_code == 503
    assert response.json()["draining"] is True
    assert response.json()["reasons"] == ["draining: the gateway is stopping"]
    assert not readiness.ready


async def test_admin_port_only_reads() -> None:
    for path in ("/metrics", "/healthz/live", "/healthz/ready"):
        assert (await get(Metrics(), Readiness(), path, "POST")).status_code == 405
    assert (await get(Metrics(), Readiness(), "/other")).status_code == 404
