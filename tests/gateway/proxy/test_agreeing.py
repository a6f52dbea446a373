"""Which era is spoken with a server, whatever it makes of the first question."""

import sys
from pathlib import Path

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig

pytestmark = pytest.mark.anyio
SERVERS = Path(__file__).parent / "servers"
ASKS = {"elicitation": {}}
NEVER = {"restart_backoff": 3600.0, "restart_backoff_max": 3600.0}


@pytest.fixture
def talking(notes):
    """Makes the configuration of the SDK's server, which speaks both eras unless it is told."""

    def make(*modes, **settings):
        command = (str(SERVERS / "talks.py"), "stdio", *modes)
        return UpstreamConfig(name="up", command=sys.executable, args=command, env={"NOTES": str(notes)}, **settings)

    return make


@pytest.mark.parametrize(
    ("modes", "settings", "spoken"),
    [
        ([], {}, "2026-07-28"),
        (["modern-only"], {}, "2026-07-28"),
        ([], {"protocol": "handshake"}, "2025-11-25"),
        ([], {"protocol": "modern"}, "2026-07-28"),
    ],
)
async def test_newest_era_is_spoken_that_both_know_and_the_operator_allows(talking, proxy_of, modes, settings, spoken):
    async with proxy_of(talking(*modes, **settings)) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.protocol) == ("up", spoken)


async def test_client_that_can_be_asked_is_asked_though_the_server_knows_no_sessions(
    talking, proxy_of, client, call, starts
):
    one = client(**ASKS)
    one.answers["elicitation/create"] = {"action": "accept", "content": {"name": "Ada"}}
    async with proxy_of(talking("modern-only")) as proxy:
        told = [await call(proxy, one, "up__elicit") for _ in range(3)]

    assert told == ["Ada"] * 3
    # One was tried for the client in vain, and once only.
    assert starts() == 2


async def test_server_whom_an_unknown_request_ends_is_greeted_the_old_way_the_next_time(obeying, proxy_of, until):
    async with proxy_of(obeying("up", {"fussy": True})) as proxy:
        await until(proxy, lambda: proxy.statuses()[0].state == "up")
        (status,) = proxy.statuses()

    assert (status.protocol, status.restarts, status.last_error) == (
        "2025-11-25",
        1,
        "its process ended (exit code 7)",
    )


async def test_server_that_does_not_answer_what_it_does_not_know_is_greeted_the_old_way(obeying, proxy_of, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.session.negotiation._PROBE_TIME", 0.3)
    async with proxy_of(obeying("up", {"mute": ["server/discover"]})) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.protocol, status.restarts) == ("up", "2025-11-25", 0)


@pytest.mark.parametrize("modes", [[], ["modern-only"]])
async def test_server_that_is_slow_to_start_may_answer_the_first_question_after_the_second_was_asked(
    talking, proxy_of, monkeypatch, modes
):
    monkeypatch.setattr("gateway.proxy.upstream.session.negotiation._PROBE_TIME", 0)
    async with proxy_of(talking(*modes)) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.protocol, status.restarts) == ("up", "2026-07-28", 0)


async def test_slow_server_that_refuses_the_first_question_is_spoken_with_as_the_second_proposes(
    obeying, proxy_of, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.session.negotiation._PROBE_TIME", 0)
    async with proxy_of(obeying("up")) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.protocol, status.restarts) == ("up", "2025-11-25", 0)


@pytest.mark.parametrize("version", ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_revision_of_the_handshake_era_is_spoken(obeying, proxy_of, client, call, version):
    async with proxy_of(obeying("up", {"version": version})) as proxy:
        assert "pid" in await call(proxy, client())
        assert proxy.statuses()[0].protocol == version


@pytest.mark.parametrize("version", ["1999-01-01", "\x1b[31m", 7, None])
async def test_version_that_we_do_not_know_is_told_with_those_that_we_do(obeying, proxy_of, version):
    async with proxy_of(obeying("up", {"version": version}), **NEVER) as proxy:
        (status,) = proxy.statuses()

    assert status.state == "restarting"
    assert "expected one of 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25: update the server" in status.last_error
    assert "\x1b" not in status.last_error


async def test_era_that_the_operator_asks_for_and_the_server_does_not_speak_is_an_error(obeying, proxy_of):
    async with proxy_of(obeying("up", protocol="modern"), **NEVER) as proxy:
        (status,) = proxy.statuses()

    assert (status.state, status.last_error) == ("restarting", "it refused server/discover: no such method")


async def test_new_session_of_a_client_is_told_once_which_log_messages_it_wants(obeying, proxy_of, client, call, noted):
    async with proxy_of(obeying("up", {"capabilities": {"logging": {}}})) as proxy:
        one = client()
        one.log_level = "error"
        for _ in range(3):
            await call(proxy, one)

    assert noted().count("logging/setLevel error") == 1


async def test_only_client_of_a_modern_server_hears_of_changes_though_it_can_not_subscribe_there(
    talking, proxy_of, client, call
):
    one = client()
    proxy = proxy_of(talking("modern-only", protocol="modern"))
    proxy.adopt(one)
    async with proxy:
        await proxy.handle("resources/subscribe", {"uri": "note:1"}, one)
        with anyio.fail_after(60):
            # The server is asked to tell of changes beside the client's request, not before its answer.
            while not one.heard:
                await call(proxy, one, "up__touch")

    assert one.heard[0] == ("notifications/resources/updated", {"uri": "note:1"})
    assert {method for method, _ in one.heard} == {"notifications/resources/updated"}
