"""Which requests reach the console, and what every answer of it carries."""

import pytest

from gateway.config.access import ConsoleConfig
from gateway.config.gateway_config import ServeConfig

pytestmark = pytest.mark.anyio
TOKEN = "an-operators-token-of-40-characters-here"
CONTENT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
TLS = {"x-forwarded-proto": "https", "x-forwarded-for": "192.0.2.7", "host": "gateway.example"}


def assert_marked(answer) -> None:
    headers = answer.headers
    assert headers.get_list("content-security-policy") == [CONTENT]
    assert headers.get_list("cache-control") == ["no-store"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/sign-in",
        "/console/why",
        "/console/nowhere",
        "/console/static/console.css",
        "/console/static/..%2fpages.py",
        "/console/static/nothing.css",
    ],
)
async def test_every_answer_carries_the_policy(site, path: str) -> None:
    for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS"):
        assert_marked(await site.browser.http.request(method, path, headers={"origin": "http://127.0.0.1:8601"}))
    await site.browser.sign_in()
    assert_marked(await site.browser.get(path))


async def test_refusals_carry_it_too(site) -> None:
    for headers in ({"host": "evil.example"}, {"x-forwarded-for": "192.0.2.7"}, {"sec-fetch-site": "cross-site"}):
        answer = await site.browser.http.get("/console", headers=headers)
        assert answer.status_code in (403, 421)
        assert_marked(answer)


async def test_other_pages_are_left_as_they_are(site) -> None:
    answer = await site.browser.http.get("/consoles", headers={"host": "evil.example"})

    assert (answer.status_code, answer.text) == (200, "other pages")
    assert "content-security-policy" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8601", "", "127.0.0.1/x"])
async def test_name_that_is_not_ours_is_refused(site, host: str) -> None:
    answer = await site.browser.http.get("/console/sign-in", headers={"host": host})

    assert answer.status_code == 421
    assert "serve.allowed_hosts" in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8601", "localhost:8601", "[::1]:8601", "LOCALHOST"])
async def test_names_of_this_machine_are_ours(site, host: str) -> None:
    assert (await site.browser.http.get("/console/sign-in", headers={"host": host})).status_code == 200


async def test_header_that_decides_may_not_come_twice(site) -> None:
    pairs = [("host", "127.0.0.1"), ("origin", "http://127.0.0.1"), ("origin", "http://evil.example")]

    assert (await site.browser.http.get("/console/sign-in", headers=pairs)).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8601", "sec-fetch-site": "same-origin"}, 303),
        ({"origin": "http://127.0.0.1:8601"}, 303),
        ({"sec-fetch-site": "same-origin"}, 303),
        ({}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "https://127.0.0.1:8601"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:8601.evil.example"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"origin": "http://evil.example", "sec-fetch-site": "same-origin"}, 403),
        ({"origin": "http://127.0.0.1:8601", "sec-fetch-site": "same-site"}, 403),
    ],
)
async def test_change_comes_from_a_page_of_ours_alone(site, headers: dict[str, str], status: int) -> None:
    answer = await site.browser.http.post("/console/sign-in", data={"key": TOKEN}, headers=headers)

    assert answer.status_code == status
    assert ("set-cookie" in answer.headers) == (status == 303)


@pytest.mark.parametrize(
    ("site_of", "mode", "status"),
    [("cross-site", "no-cors", 403), ("same-site", "cors", 403), ("cross-site", "navigate", 200), ("none", "", 200)],
)
async def test_pages_of_others_may_link_to_the_console_and_load_nothing_of_it(
    site, site_of: str, mode: str, status: int
) -> None:
    headers = {"sec-fetch-site": site_of, **({"sec-fetch-mode": mode} if mode else {})}

    assert (await site.browser.http.get("/console/sign-in", headers=headers)).status_code == status


@pytest.mark.parametrize("headers", [{}, {"host": "gateway.example"}, TLS, {**TLS, "host": "127.0.0.1"}])
async def test_beyond_this_machine_nothing_is_served_without_tls(run_console, settings_of, headers) -> None:
    serve = ServeConfig(admin_host="0.0.0.0", allowed_hosts=("gateway.example",))
    async with run_console(settings_of(serve=serve), peer="192.0.2.5") as site:
        answer = await site.browser.http.get("/console/sign-in", headers=headers)

    assert answer.status_code == 403
    assert "TLS" in answer.text
    assert "serve.trusted_proxies" in answer.text


async def test_proxy_with_tls_that_is_trusted_is_served_and_its_cookie_is_secure(run_console, settings_of) -> None:
    serve = ServeConfig(admin_host="0.0.0.0", allowed_hosts=("gateway.example",), trusted_proxies=("192.0.2.5/32",))
    async with run_console(settings_of(serve=serve), peer="192.0.2.5") as site:
        headers = {**TLS, "origin": "https://gateway.example", "sec-fetch-site": "same-origin"}
        signed_in = await site.browser.http.post("/console/sign-in", data={"key": TOKEN}, headers=headers)
        plain = [
            await site.browser.http.get("/console/sign-in", headers=each)
            for each in (
                {**TLS, "x-forwarded-proto": "http"},
                {**TLS, "x-forwarded-proto": "https, http"},
                {"host": "gateway.example", "x-forwarded-for": "192.0.2.7"},
                {"host": "gateway.example"},
            )
        ]

    assert signed_in.status_code == 303
    assert "; Secure" in signed_in.headers["set-cookie"]
    assert [each.status_code for each in plain] == [403] * 4


async def test_proxy_on_this_machine_is_no_way_around_tls(site) -> None:
    """It asks from loopback, and by a loopback name, where nobody told it to keep the browser's."""
    for header in ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"):
        assert (await site.browser.http.get("/console/sign-in", headers={header: "192.0.2.7"})).status_code == 403


@pytest.mark.parametrize(
    ("admin", "printed"), [("http://127.0.0.1:8601", True), ("http://0.0.0.0:8601", False), ("unix:/x", False)]
)
async def test_start_prints_an_address_where_it_can_be_opened(run_console, settings_of, admin, printed) -> None:
    serve = ServeConfig(admin_host="0.0.0.0" if "0.0.0.0" in admin else "127.0.0.1")
    async with run_console(settings_of(serve=serve, console=ConsoleConfig())) as site:
        assert (site.browser.mount.start_url(admin) is not None) == printed
