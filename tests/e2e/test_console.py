"""The console of a gateway as it is served: the address of the start, that of the command, and several processes."""

import json
import re
import stat
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from gateway.cli import exit_codes
from gateway.cli.app import run

TOKEN = "an-operators-token-of-40-characters-here"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of both, the gateway and the command."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "codec-gateway"


def sign_in(url: str) -> httpx2.Response:
    """What a browser does with an address that was printed."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    key = parts.query.removeprefix("key=")
    with httpx2.Client(base_url=origin, headers={"origin": origin}) as http:
        answer = http.post("/console/sign-in", data={"key": key})
        return http.get("/console/why") if answer.status_code == 303 else answer


def test_address_of_the_start_signs_in_once(start_gateway, state: Path) -> None:
    gateway = start_gateway({})
    url = gateway.log.wait_for("the console")["url"]

    assert url.startswith(f"{gateway.admin}/console/sign-in?key=")
    assert sign_in(url).status_code == 200
    assert sign_in(url).status_code == 403
    assert not (state / "console-token").exists()


def test_every_page_of_a_served_gateway_is_there(start_gateway, state, tells_time) -> None:
    gateway = start_gateway({"time": tells_time})
    url = urlsplit(gateway.log.wait_for("the console")["url"])
    with httpx2.Client(base_url=gateway.admin, headers={"origin": gateway.admin}, follow_redirects=True) as http:
        page = http.post("/console/sign-in", data={"key": url.query.removeprefix("key=")})
        seen: dict[str, int] = {}
        waiting = [str(page.url.path)]
        while waiting:
            address = waiting.pop()
            answer = http.get(address)
            seen[address] = answer.status_code
            waiting += [
                unescape(each)
                for each in re.findall(r'(?:href|src)="(/console[^"#]*)"', answer.text)
                if unescape(each) not in seen
            ]

    assert set(seen.values()) == {200}
    assert {"/console/why", "/console/servers", "/console/tokenizer", "/console/static/live.js"} <= seen.keys()
    assert "/console/tool?name=get_time" in seen


def test_command_signs_in_by_a_secret_that_its_owner_alone_can_read(start_gateway, state: Path, capsys) -> None:
    gateway = start_gateway({})

    codes = [run(["console", "--admin", gateway.admin]) for _ in range(2)]
    first, second = capsys.readouterr().out.split()

    assert codes == [exit_codes.OK] * 2
    assert stat.S_IMODE((state / "console-token").stat().st_mode) == 0o600
    secret = (state / "console-token").read_text().strip()
    assert secret not in first + second + gateway.log.text
    assert [sign_in(each).status_code for each in (first, first, second)] == [200, 403, 200]


def test_configured_secret_takes_the_place_of_the_stored_one(start_gateway, state, capsys, monkeypatch) -> None:
    monkeypatch.setenv("CODEC_ADMIN_TOKEN", TOKEN)
    gateway = start_gateway({}, env={"CODEC_ADMIN_TOKEN": TOKEN})

    assert run(["console", "--admin", gateway.admin]) == exit_codes.OK
    assert sign_in(capsys.readouterr().out.strip()).status_code == 200
    assert not (state / "console-token").exists()
    assert sign_in(f"{gateway.admin}/console/sign-in?key={TOKEN}").status_code == 200
    assert TOKEN not in gateway.log.text


def test_whoever_has_another_secret_gets_nowhere(start_gateway, state, capsys, monkeypatch) -> None:
    """A server on this machine may ask for the page; it can't make a key."""
    gateway = start_gateway({}, env={"CODEC_ADMIN_TOKEN": TOKEN})

    assert run(["console", "--admin", gateway.admin]) == exit_codes.OK
    assert sign_in(capsys.readouterr().out.strip()).status_code == 403
    assert gateway.metric("codec_auth_failures_total", reason="unknown") == 1


def test_secret_that_others_can_read_lets_nobody_in(start_gateway, state: Path, capsys) -> None:
    gateway = start_gateway({})
    run(["console", "--admin", gateway.admin])
    url = capsys.readouterr().out.strip()
    (state / "console-token").chmod(0o644)

    refused = sign_in(url)

    assert refused.status_code == 503
    assert "others can read this token" in refused.text
    assert run(["console", "--admin", gateway.admin]) == exit_codes.CONFIG


def test_short_secret_is_refused_at_the_start(tmp_path: Path, launch) -> None:
    with launch({}, env={"CODEC_ADMIN_TOKEN": "short"}) as (process, log):
        assert process.wait(30) == exit_codes.CONFIG
        log.close()
    assert "expected at least 32 characters" in log.text
    assert "short" not in log.text


def test_command_tells_what_is_no_console(start_gateway, state, capsys) -> None:
    gateway = start_gateway({})

    code = run(["console", "--admin", gateway.url])

    assert code == exit_codes.UNREACHABLE
    assert "is not the admin port of a gateway" in capsys.readouterr().err


def test_several_workers_have_no_console_and_say_so(start_gateway, state, capsys) -> None:
    gateway = start_gateway({}, "--workers", "2")

    answers = [httpx2.get(f"{gateway.admin}{path}") for path in ("/console", "/console/sign-in", "/console/why")]
    code = run(["console", "--admin", gateway.admin])

    assert [each.status_code for each in answers] == [501] * 3
    assert "--workers 1" in json.loads(answers[0].text)["error"]["message"]
    assert code == exit_codes.UNREACHABLE
    assert "--workers 1" in capsys.readouterr().err
    assert gateway.log.events("the console") == []
