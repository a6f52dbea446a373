"""The console's pages as a person meets them: sign-in, forms, files, errors; and what comes of nobody."""

import subprocess
import sys

import pytest

from codec_console import render
from gateway.documentation.pages import CommandSpelling

pytestmark = pytest.mark.anyio
TOKEN = "an-operators-token-of-40-characters-here"
CURRENT = {"/console/pins": "/console/servers"}
PAGES = ["/console/why", "/console/servers", "/console/pins", "/console/tokenizer"]


@pytest.mark.parametrize("path", ["/console", *PAGES])
async def test_who_is_not_signed_in_is_led_to_the_form(site, path: str) -> None:
    for headers in ({}, {"cookie": "codec-console-8601=guess"}, {"authorization": f"Bearer {TOKEN}"}):
        answer = await site.browser.http.get(path, headers=headers)
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/sign-in")
        assert answer.text == ""


async def test_signed_out_page_names_the_command_that_lets_one_in(site, page_of) -> None:
    commands = {
        url: page_of((await site.browser.http.get(f"{url}/console/sign-in")).text).one("pre").text
        for url in ("http://127.0.0.1:8601", "http://127.0.0.1:8701")
    }

    assert commands == {
        "http://127.0.0.1:8601": "codec-gateway console",
        "http://127.0.0.1:8701": "codec-gateway console --admin http://127.0.0.1:8701",
    }


async def test_signed_out_page_spells_the_command_for_the_reader(
    run_console, settings_of, page_of, monkeypatch
) -> None:
    monkeypatch.setattr(render, "own_spelling", lambda: CommandSpelling("e/bin/"))
    async with run_console(settings_of()) as site:
        page = page_of((await site.browser.http.get("/console/sign-in")).text)

    assert page.one("pre").text == "e/bin/codec-gateway console"


async def test_address_of_the_start_signs_in_by_a_form_and_looking_at_it_does_not_use_it_up(site) -> None:
    browser, url = site.browser, site.browser.mount.start_url("http://127.0.0.1:8601")
    for method in ("HEAD", "GET", "GET"):
        looked = await browser.http.request(method, url)
        assert looked.status_code == 200
        assert "set-cookie" not in looked.headers
    form = (await browser.page(url)).one("form", action="/console/sign-in")
    key = form.one("input", name="key").attributes["value"]

    signed_in = await browser.post("/console/sign-in", {"key": key})

    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/console")
    cookie = signed_in.headers["set-cookie"]
    assert all(part in cookie for part in ("; HttpOnly", "; SameSite=strict", "; Path=/console", "; Max-Age=43200"))
    assert "Secure" not in cookie
    assert (await browser.get("/console/why")).status_code == 200

    again = await browser.get(url)
    assert (again.status_code, again.headers["location"]) == (303, "/console")
    browser.http.cookies.clear()
    stranger = await browser.http.get(url)
    assert stranger.status_code == 403
    assert "This URL signs you in" not in stranger.text
    assert "has been used" in stranger.text


async def test_wrong_key_is_refused_in_words_and_too_many_are_told_to_wait(site, page_of) -> None:
    answers = [await site.browser.post("/console/sign-in", {"key": "<b>guess"}) for _ in range(21)]

    first, last = answers[0], answers[-1]
    assert {each.status_code for each in answers[:-1]} == {403}
    assert "neither" in page_of(first.text).one(role="alert").text
    assert (last.status_code, last.headers["retry-after"]) == (429, "5")
    assert (await site.browser.sign_in()).status_code == 303


async def test_form_that_is_none_is_refused(site) -> None:
    headers = {"origin": "http://127.0.0.1:8601", "content-type": "application/json"}
    as_json = await site.browser.http.post("/console/sign-in", content=b"{}", headers=headers)
    too_long = await site.browser.post("/console/sign-in", {"key": "x" * 5000})

    assert (as_json.status_code, too_long.status_code) == (415, 413)


async def test_signing_out_ends_the_session_whoever_has_its_cookie(browser) -> None:
    stolen = dict(browser.http.cookies)
    left = await browser.send("/console/sign-out", {})

    assert (left.status_code, left.headers["location"]) == (303, "/console/sign-in")
    browser.http.cookies.update(stolen)
    assert (await browser.get("/console/why")).status_code == 303


@pytest.mark.parametrize("csrf", ["", "wrong", "ü"])
async def test_form_without_its_sessions_word_changes_nothing(browser, csrf: str) -> None:
    answer = await browser.post("/console/sign-out", {"csrf": csrf})

    assert answer.status_code == 403
    assert (await browser.get("/console/why")).status_code == 200


async def test_word_of_another_session_is_none_of_ours(browser) -> None:
    theirs = await browser.csrf()
    browser.http.cookies.clear()
    await browser.sign_in()

    assert (await browser.post("/console/sign-out", {"csrf": theirs})).status_code == 403


async def test_form_of_who_is_not_signed_in_is_refused(site) -> None:
    assert (await site.browser.post("/console/sign-out", {"csrf": "x"})).status_code == 401


async def test_files_are_looked_up_and_never_opened_by_a_name(site) -> None:
    style = await site.browser.get("/console/static/console.css")
    assert style.headers["content-type"] == "text/css; charset=utf-8"
    assert (await site.browser.get("/console/static/live.js")).headers["content-type"].startswith("text/javascript")
    for name in ("..%2fpages.py", "%2e%2e/pages.py", "nothing.css", "console.css%00", "/etc/passwd"):
        assert (await site.browser.get(f"/console/static/{name}")).status_code == 404


async def test_what_is_no_page_says_so_without_markup_of_the_address(browser, page_of) -> None:
    answer = await browser.get("/console/%3Cscript%3Ealert(1)%3C/script%3E")

    page = page_of(answer.text)
    assert answer.status_code == 404
    assert page.all("script") == []
    assert "<script>" in page.one(role="alert").text


@pytest.mark.parametrize("path", PAGES)
async def test_each_page_runs_nothing_inline_and_names_nothing_elsewhere(browser, path: str) -> None:
    page = await browser.page(path)

    for element in page.all():
        assert not [name for name in element.attributes if name.startswith("on") or name == "style"]
        for name in ("src", "href", "action"):
            value = element.attributes.get(name)
            assert value is None or value.startswith(("/console", "#", "data:,"))
    assert [script.text for script in page.all("script") if not script.attributes.get("src")] == []
    assert page.all("style") == []
    assert page.one("html").attributes["lang"] == "en"
    assert [a.attributes["href"] for a in page.all("a") if "aria-current" in a.attributes] == [CURRENT.get(path, path)]


def test_nothing_of_the_pages_is_loaded_before_somebody_asks() -> None:
    code = (
        "import sys, gateway.app.process; "
        "print([n for n in sys.modules if n.startswith(('jinja2', 'markupsafe', 'codec_console.pages'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"


async def test_first_request_loads_the_pages_and_those_that_are_refused_do_not(site) -> None:
    for name in [n for n in sys.modules if n == "codec_console.pages"]:
        del sys.modules[name]

    await site.browser.http.get("/console/sign-in", headers={"host": "evil.example"})
    assert "codec_console.pages" not in sys.modules
    await site.browser.get("/console/sign-in")
    assert "codec_console.pages" in sys.modules
