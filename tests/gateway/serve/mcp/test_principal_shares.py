"""One key leaves room for the others: of sessions and of subscriptions it has its share, and is told so."""

import pytest

from gateway.proxy.caller import Principal

pytestmark = pytest.mark.anyio
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
LISTEN = {"notifications": {"toolsListChanged": True}}
ANN, BOB = Principal("ann"), Principal("bob")


def refusals(site, kind, limit):
    labels = {"kind": kind, "limit": limit}
    return site.metrics.registry.get_sample_value("codec_bound_refusals_total", labels)


async def test_key_that_opens_sessions_without_end_gets_its_share_and_others_still_get_one(servers, site_of):
    async with site_of(servers, max_sessions=8) as site:
        site.principal = ANN
        mine = [await site.session() for _ in range(2)]
        first = mine[0].headers.pop("mcp-session-id")
        refused = await mine[0].post("initialize", GREETING)
        site.principal = BOB
        await site.session()
        site.principal = ANN
        await mine[0].http.delete(site.url, headers={**mine[0].headers, "mcp-session-id": first})
        again = await mine[0].post("initialize", GREETING)
        counted = refusals(site, "session", "share")

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert refused.json()["error"]["message"] == (
        "'ann' already has 2 of the 8 sessions (serve.max_sessions), and its share is 2 (limits.principal_share): "
        "end what is no longer needed, or ask the operator for a larger share"
    )
    assert again.status_code == 200
    assert counted == 1


async def test_session_whose_greeting_was_no_good_takes_nothing_of_the_share(servers, site_of):
    async with site_of(servers, max_sessions=4) as site:
        site.principal = ANN
        http = await site.http()
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        bad = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        refused = [(await http.post(site.url, json=bad, headers=headers)).json() for _ in range(3)]
        await site.session()

    assert all("error" in each for each in refused)


async def test_key_listens_to_its_share_of_subscriptions(servers, site_of, monkeypatch):
    monkeypatch.setattr("gateway.serve.mcp.methods._MOST", 4)
    async with site_of(servers) as site:
        site.principal = ANN
        async with site.modern_stream("subscriptions/listen", LISTEN) as stream:
            await stream.event()
            over = (await site.modern("subscriptions/listen", LISTEN)).json()
            site.principal = BOB
            async with site.modern_stream("subscriptions/listen", LISTEN) as theirs:
                acknowledged = await theirs.event()
        counted = refusals(site, "subscription", "share")

    assert "'ann' already has 1 of the 4 subscriptions, and its share is 1" in over["error"]["message"]
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert counted == 1


async def test_client_is_heard_with_each_of_its_messages_and_is_idle_only_between_them(servers, site_of):
    async with site_of(servers) as site:
        session = await site.session()
        (live,) = site.endpoint._sessions.live()
        before = live.times_heard
        await session.post("ping")
        heard = live.times_heard - before
        between = live.idle_since
        async with session.listen():
            listening = live.idle_since

    assert heard == 1
    assert between is not None
    assert listening is None
