"""Servers at which each principal signs in for itself: whose token is used, what each sees, and who is asked to."""

import asyncio
from dataclasses import replace

import anyio
import pytest

from gateway.config.overrides import ApprovalsConfig, ToolOverride
from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy import per_user
from gateway.proxy.caller import ANYBODY, Nobody, Principal
from gateway.proxy.transport.oauth.grants import OPERATOR, GrantKey, GrantStore
from gateway.proxy.transport.oauth.user_sign_ins import UserSignIns
from gateway.proxy.transport.transport_interface import NoAnswer

from .standin_accounts import standin_accounts

pytestmark = pytest.mark.anyio
ANN, BOB = Principal("ann", owner="key:a"), Principal("bob", owner="key:b")
PAGE = "http://127.0.0.1:8600/sign-in?server=docs"
URLS = {"elicitation": {"url": {}}}


@pytest.fixture
async def accounts(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with standin_accounts() as made:
        yield made
        assert made.mixed == []


@pytest.fixture
def store(accounts):
    return GrantStore()


async def call(proxy, principal, name="docs__who", word="", caller=None):
    params = {"name": name, "arguments": {"word": word}}
    with anyio.fail_after(30):
        outcome = await proxy.call_tool(params, caller or Nobody(modern=False, principal=principal))
    return outcome.result["content"][0]["text"]


async def names(proxy, principal, kind="tools"):
    with anyio.fail_after(30):
        answer = await proxy.handle(f"{kind}/list", {}, Nobody(modern=False, principal=principal))
    return [each.get("uri", each["name"]) for each in answer[kind]]


async def test_each_principal_is_itself_at_the_server_in_a_thousand_interleaved_calls(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in("key:a", "ann")
        await accounts.sign_in("key:b", "bob")
        who, room = [(ANN, "ann"), (BOB, "bob")] * 500, anyio.CapacityLimiter(100)

        async def ask(number, principal):
            async with room:
                return await call(proxy, principal, word=str(number))

        answers = await asyncio.gather(*(ask(i, each) for i, (each, _) in enumerate(who)))

    assert answers == [f"{person} {i}" for i, (_, person) in enumerate(who)]
    assert {accounts.sessions[each] for each in accounts.sessions} == {"ann", "bob"}


async def test_caller_who_has_not_signed_in_is_told_where_and_nothing_is_sent(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in("key:a", "ann")
        await call(proxy, ANN)
        before = len(accounts.server.asked)
        answer = await call(proxy, BOB)

        assert f"open {PAGE} in a browser" in answer
        assert len(accounts.server.asked) == before


async def test_principal_without_an_owner_never_gets_a_token(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in(OPERATOR, "boss")

        assert PAGE in await call(proxy, Principal("stray"))
        assert "tools/call" not in accounts.methods


async def test_operator_uses_the_sign_in_of_the_command_and_nobody_else_does(accounts, proxy_of):
    await accounts.sign_in(OPERATOR, "boss")
    async with proxy_of(accounts.config()) as proxy:
        assert await call(proxy, ANYBODY) == "boss "
        assert PAGE in await call(proxy, ANN)
        assert await names(proxy, ANN) == ["docs__who", "docs__of_boss"]


async def test_lists_of_one_principal_are_not_shown_to_another(accounts, proxy_of):
    accounts.open_lists = True
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in("key:a", "ann")
        seen = {each: [await names(proxy, each), await names(proxy, each, "resources")] for each in (ANN, BOB, ANYBODY)}
        stranger = await call(proxy, BOB, "docs__of_ann")
        tools = {each: [tool.name for tool in proxy.tools(each)] for each in (ANN, BOB, ANYBODY)}

    common = ["docs__who", "docs__of_nobody"]
    assert seen[ANN] == [["docs__who", "docs__of_ann"], ["note:///ann"]]
    assert seen[BOB] == seen[ANYBODY] == [common, ["note:///nobody"]]
    assert tools == {ANN: ["docs__who", "docs__of_ann"], BOB: common, ANYBODY: common}
    # Whatever the name: whether there is such a tool is not said.
    assert PAGE in stranger
    assert "tools/call" not in accounts.methods


async def call_refused(proxy, principal, name):
    with anyio.fail_after(30), pytest.raises(RpcError) as refused:
        await proxy.handle("tools/call", {"name": name, "arguments": {}}, Nobody(modern=False, principal=principal))
    return str(refused.value)


async def test_own_tools_and_resources_are_called_and_read_beside_another_server(accounts, proxy_of, obeying):
    async with proxy_of(accounts.config(), obeying()) as proxy:
        await accounts.sign_in("key:a", "ann")
        (uri,) = [each for each in await names(proxy, ANN, "resources") if "ann" in each]
        ann, bob = (Nobody(modern=False, principal=each) for each in (ANN, BOB))
        answer = await proxy.handle("resources/read", {"uri": uri}, ann)

        assert await call(proxy, ANN, "docs__of_ann", "x") == "ann x"
        assert answer["contents"][0]["text"] == "read by ann"
        with pytest.raises(RpcError):
            await proxy.handle("resources/read", {"uri": uri}, bob)
        assert "resources/read" in accounts.methods


async def test_tool_that_ones_own_list_lacks_is_unknown_though_all_others_see_it(accounts, proxy_of):
    accounts.open_lists = True
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in("key:a", "ann")
        assert "unknown tool" in await call_refused(proxy, ANN, "docs__of_nobody")
    assert "tools/call" not in accounts.methods


async def test_name_that_another_server_has_stays_that_of_the_other_server(accounts, proxy_of, obeying):
    config = accounts.config(overrides={"of_ann": ToolOverride(name="up__do")})
    async with proxy_of(config, obeying()) as proxy:
        await accounts.sign_in("key:a", "ann", config)
        await call(proxy, ANN)
        listed = await proxy.handle("tools/list", {}, Nobody(modern=False, principal=ANN))
        (shown,) = [each for each in listed["tools"] if each["name"] == "up__do"]
        servers = [each.server for each in proxy.tools(ANN) if each.name == "up__do"]

    assert shown.get("description") != "ann"
    assert servers == ["up"]


async def test_nothing_is_learned_for_a_user_with_the_operators_sign_in(accounts, proxy_of, client):
    await accounts.sign_in(OPERATOR, "boss")
    bob = client(principal=BOB, elicitation={}, roots={})
    async with proxy_of(accounts.config()) as proxy:
        assert PAGE in await call(proxy, BOB, "docs__hidden", caller=bob)
        assert accounts.methods.count("initialize") == 1


async def test_session_of_a_client_ends_with_the_client(accounts, proxy_of, client):
    ann = client(principal=ANN)
    config = accounts.config(sessions="per_client")
    async with proxy_of(config) as proxy:
        await accounts.sign_in("key:a", "ann", config)
        assert await call(proxy, ANN, caller=ann) == "ann "
        open_before = proxy.statuses()[0].sessions
        proxy.session_ended(ann)
        await accounts.server.until(lambda: accounts.methods.count("DELETE") == 1)

    assert open_before == 2


async def test_metric_does_not_say_that_a_server_is_up_because_one_user_reaches_it(accounts, proxy_of):
    metrics = Metrics()
    async with proxy_of(accounts.config(), metrics=metrics, restart_backoff=100.0, restart_backoff_max=100.0) as proxy:
        await accounts.sign_in("key:a", "ann")
        await call(proxy, ANN)
        assert metrics.registry.get_sample_value("codec_upstream_up", {"server": "docs"}) == 0


async def test_session_of_an_ended_sign_in_ends_though_nobody_uses_it(accounts, proxy_of, store, monkeypatch):
    # A ping finds out as well, some time.
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance._PING_EVERY", 600.0)
    monkeypatch.setattr(per_user, "_SWEEP", 0.01)
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_renewal._LOOK", 0.0)
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in("key:a", "ann")
        await call(proxy, ANN)
        store.delete(GrantKey("key:a", "docs", accounts.url))
        await accounts.server.until(lambda: "DELETE" in accounts.methods)


async def test_approval_goes_by_what_the_callers_own_list_says(accounts, proxy_of):
    accounts.open_lists = True
    accounts.hints = {"nobody": {"readOnlyHint": True}, "ann": {"destructiveHint": True}}
    async with proxy_of(accounts.config()) as proxy:
        await proxy.reload(replace(proxy.config, approvals=ApprovalsConfig("destructive", {})))
        await accounts.sign_in("key:a", "ann")

        assert "Its calls need an approval" in await call(proxy, ANN)
    assert "tools/call" not in accounts.methods


async def test_signing_in_again_as_somebody_else_leaves_the_old_session_behind(accounts, proxy_of, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_renewal._LOOK", 0.0)
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in("key:a", "ann")
        first = await call(proxy, ANN)
        await accounts.sign_in("key:a", "amy")
        second, tools = await call(proxy, ANN), await names(proxy, ANN)

    assert (first, second, tools) == ("ann ", "amy ", ["docs__who", "docs__of_amy"])


async def test_signing_out_or_a_refused_renewal_ends_only_ones_own(accounts, proxy_of, store, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_renewal._LOOK", 0.0)
    config = accounts.config()
    async with proxy_of(config) as proxy:
        for principal, person in ((ANN, "ann"), (BOB, "bob")):
            await accounts.sign_in(principal.owner, person)
            await call(proxy, principal)
        grant = store.read(GrantKey("key:a", config.name, accounts.url))
        del accounts.refresh_tokens[grant.refresh]
        del accounts.valid[grant.access]
        ended = [await call(proxy, ANN), await call(proxy, ANN)]

        assert all(f"open {PAGE}" in each for each in ended)
        assert "needs you to sign in" in ended[1]
        assert await call(proxy, BOB) == "bob "
        store.delete(GrantKey("key:b", config.name, accounts.url))
        assert "needs you to sign in" in await call(proxy, BOB)


async def test_signing_out_of_one_server_leaves_the_sign_in_to_another(accounts, proxy_of, store, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_renewal._LOOK", 0.0)
    one, two = accounts.config("one"), accounts.config("two")
    async with proxy_of(one, two) as proxy:
        await accounts.sign_in("key:a", "work", one)
        await accounts.sign_in("key:a", "home", two)
        both = [await call(proxy, ANN, "one__who"), await call(proxy, ANN, "two__who")]
        store.delete(GrantKey("key:a", "one", accounts.url))

        assert both == ["work ", "home "]
        assert "'one' needs you to sign in" in await call(proxy, ANN, "one__who")
        assert await call(proxy, ANN, "two__who") == "home "


async def test_calls_that_run_at_the_server_are_bounded_for_all_users_together(accounts, proxy_of):
    held, running = anyio.Event(), []

    async def hold(asked, reply):
        if asked.body.startswith(b"{") and asked.message.get("method") == "tools/call":
            running.append(accounts.whose[asked.headers["authorization"].removeprefix("Bearer ")])
            if len(running) == 1:
                await held.wait()
        return False

    accounts.before = hold
    config = accounts.config(concurrency=1)
    async with proxy_of(config) as proxy, anyio.create_task_group() as tasks:
        for principal in (ANN, BOB):
            await accounts.sign_in(principal.owner, principal.name, config)
            await names(proxy, principal)
        tasks.start_soon(call, proxy, ANN)
        await accounts.server.until(lambda: running == ["ann"])
        params = {"name": "docs__who", "arguments": {}}
        late = await proxy.call_tool(params, Nobody(modern=False, principal=BOB), seconds=0.05)
        held.set()

    assert running == ["ann"]
    assert "is busy" in late.result["content"][0]["text"]


async def test_user_of_a_handshake_client_is_shown_the_page_and_the_call_goes_on(
    accounts, proxy_of, client, monkeypatch
):
    monkeypatch.setattr(per_user, "_LOOK", 0.01)
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_renewal._LOOK", 0.0)
    ann = client(principal=ANN, **URLS)
    ann.answers["elicitation/create"] = {"action": "accept"}
    async with proxy_of(accounts.config()) as proxy, anyio.create_task_group() as tasks:
        answers = []

        async def ask():
            answers.append(await call(proxy, ANN, caller=ann))

        tasks.start_soon(ask)
        await ann.until(lambda: ann.was_asked)
        await accounts.sign_in("key:b", "bob")
        await accounts.sign_in("key:a", "ann")

    assert answers == ["ann "]
    assert [method for method, _ in ann.heard] == ["notifications/elicitation/complete"]


@pytest.mark.parametrize("action", ["decline", "cancel", None])
async def test_user_who_declines_gets_the_error_with_the_page(accounts, proxy_of, client, action):
    ann = client(principal=ANN, **URLS)
    ann.answers["elicitation/create"] = {"action": action}
    async with proxy_of(accounts.config()) as proxy:
        assert PAGE in await call(proxy, ANN, caller=ann)


async def test_client_that_takes_no_question_gets_the_error_that_names_the_page(accounts, proxy_of, client):
    ann = client(principal=ANN, **URLS)
    async with proxy_of(accounts.config()) as proxy:
        with pytest.raises(RpcError) as refused:
            await call(proxy, ANN, caller=ann)

    assert refused.value.error["code"] == -32042
    (asked,) = refused.value.error["data"]["elicitations"]
    assert asked.keys() == {"mode", "url", "message", "elicitationId"}


async def test_client_that_shows_only_forms_is_not_asked(accounts, proxy_of, client):
    ann = client(principal=ANN, elicitation={})
    async with proxy_of(accounts.config()) as proxy:
        assert PAGE in await call(proxy, ANN, caller=ann)
    assert ann.was_asked == []


async def test_user_of_a_modern_client_is_shown_the_page_until_they_have_signed_in(
    accounts, proxy_of, client, monkeypatch
):
    monkeypatch.setattr(per_user, "_ROUND", 0.01)
    monkeypatch.setattr("gateway.proxy.transport.oauth.token_renewal._LOOK", 0.0)
    ann = client(modern=True, principal=ANN, **URLS)
    sent = {"name": "docs__who", "arguments": {"word": "x"}}
    async with proxy_of(accounts.config()) as proxy:
        first = await proxy.handle("tools/call", sent, ann)
        again = {**sent, "requestState": first["requestState"], "inputResponses": {"sign-in": {"action": "accept"}}}
        second = await proxy.handle("tools/call", again, ann)
        declined = {**again, "inputResponses": {"sign-in": {"action": "decline"}}}
        refused = await proxy.handle("tools/call", declined, ann)
        await accounts.sign_in("key:a", "ann")
        last = await proxy.handle("tools/call", again, ann)

    (request,) = first["inputRequests"].values()
    assert (request["method"], request["params"]["mode"], request["params"]["url"]) == (
        "elicitation/create",
        "url",
        PAGE,
    )
    assert first["resultType"] == second["resultType"] == "input_required"
    assert refused["isError"]
    assert PAGE in refused["content"][0]["text"]
    assert last["content"][0]["text"] == "ann x"
    assert all("inputResponses" not in asked.body.decode() for asked in accounts.server.asked)


async def test_request_besides_calls_says_which_page_to_open(accounts, proxy_of, client):
    accounts.open_lists = True
    async with proxy_of(accounts.config()) as proxy:
        errors = []
        for caller in (
            client(principal=ANN, **URLS),
            client(principal=ANN),
            client(modern=True, principal=ANN, **URLS),
        ):
            with pytest.raises(RpcError) as refused:
                await proxy.handle("resources/read", {"uri": "note:///nobody"}, caller)
            errors.append(refused.value.error)

    assert errors[0]["code"] == -32042
    assert errors[0]["data"]["elicitations"][0]["url"] == PAGE
    assert all(each["code"] == -32603 and PAGE in each["message"] for each in errors[1:])


async def test_client_is_told_at_its_start_where_to_sign_in(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        assert PAGE in proxy.instructions(ANN)
        assert PAGE not in (proxy.instructions(ANYBODY) or "")
        await accounts.sign_in("key:a", "ann")
        assert PAGE not in (proxy.instructions(ANN) or "")


async def test_change_of_ones_own_list_is_told_to_ones_own_clients(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        changes = []
        proxy.on_change(changes.append)
        await accounts.sign_in("key:a", "ann")
        proxy.signed_in("docs", "key:a")
        await call(proxy, ANN)

    told = {(each.kind, each.owner) for each in changes if each.owner is not None}
    assert told == {(kind, "key:a") for kind in ("tools", "prompts", "resources")}


async def test_log_level_of_a_client_whose_user_has_not_signed_in_is_accepted(accounts, proxy_of, client):
    accounts.open_lists = accounts.logs = True
    bob = client(principal=BOB)
    async with proxy_of(accounts.config()) as proxy:
        assert await proxy.handle("logging/setLevel", {"level": "info"}, bob) == {}
    assert "logging/setLevel" not in accounts.methods


async def test_watching_a_resource_of_such_a_server_is_refused(accounts, proxy_of):
    accounts.open_lists = True
    async with proxy_of(accounts.config()) as proxy:
        with pytest.raises(RpcError, match="can't be watched"):
            await proxy.watch(["note:///nobody"], ANN, lambda uri: None)
        stop = await proxy.watch(["note:///nobody"], ANYBODY, lambda uri: None)
        stop()


async def test_number_of_open_upstreams_is_bounded_and_idle_ones_end(accounts, proxy_of):
    config = accounts.config(client_sessions=2)
    cat = Principal("cat", owner="key:c")
    async with proxy_of(config) as proxy:
        for principal in (ANN, BOB, cat):
            await accounts.sign_in(principal.owner, principal.name, config)
            assert await call(proxy, principal) == f"{principal.name} "
        assert proxy.statuses()[0].sessions == 2


async def test_gateway_that_stops_opens_none_again_and_leaves_no_session(accounts, proxy_of):
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in("key:a", "ann")
        await accounts.sign_in("key:b", "bob")
        await call(proxy, ANN)
        proxy.stop()
        late = await call(proxy, BOB)

    assert "is stopping" in late
    assert len(accounts.sessions) == accounts.methods.count("DELETE") == 1


async def test_server_at_which_only_users_sign_in_is_reported_down_once(accounts, proxy_of, soon, caplog):
    async with proxy_of(accounts.config()) as proxy:
        await soon(lambda: accounts.methods.count("initialize") >= 4)
        del proxy

    assert [record.msg["event"] for record in caplog.records].count("upstream is down") == 1


async def test_server_whose_settings_change_keeps_the_sign_ins(accounts, proxy_of):
    config = accounts.config()
    async with proxy_of(config) as proxy:
        await accounts.sign_in("key:a", "ann")
        first = await call(proxy, ANN)
        await proxy.reload(replace(proxy.config, upstreams=(replace(config, timeout=7.0),)))

        assert (first, await call(proxy, ANN)) == ("ann ", "ann ")
        await accounts.server.until(lambda: accounts.methods.count("DELETE") == 1)


async def test_idle_upstream_is_closed_and_opened_again(accounts, proxy_of, monkeypatch):
    monkeypatch.setattr(per_user, "_SWEEP", 0.01)
    async with proxy_of(accounts.config()) as proxy:
        await accounts.sign_in("key:a", "ann")
        await call(proxy, ANN)
        # Only now: however slow the machine is, none is idle while it opens.
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(per_user, "_IDLE", 0.0)
            await accounts.server.until(lambda: "DELETE" in [asked.method for asked in accounts.server.asked])
        assert await call(proxy, ANN) == "ann "


async def test_all_users_share_one_registration_until_the_server_forgets_it(accounts, store):
    config, sign_ins = accounts.config(), UserSignIns()
    for owner in ("key:a", "key:b"):
        await accounts.sign_in(owner, owner)
    assert len(accounts.registered) == 1
    key = GrantKey("key:a", config.name, accounts.url)
    store.write(key, store.read(key).ended(client_too=True))
    await sign_ins.begin(config, "key:a")
    assert len(accounts.registered) == 2
    await sign_ins.begin(config, "key:c")
    assert len(accounts.registered) == 2


@pytest.mark.parametrize("owner", ["key:a", "key:b"])
async def test_client_that_the_token_endpoint_refuses_is_registered_anew(accounts, store, owner):
    """cloudflare/workers-oauth-provider 201, fastmcp 4520: it was forgotten, or its secret has expired."""
    await accounts.sign_in("key:a", "ann")
    before = store.read(GrantKey("key:a", "docs", accounts.url))

    async def answer(asked, reply):
        is_refused = asked.target == "/token" and before.client.id in asked.body.decode()
        if is_refused:
            await reply.message({"error": "invalid_client"}, 401)
        return is_refused

    accounts.before = answer
    with pytest.raises(NoAnswer, match="invalid_client"):
        await accounts.sign_in(owner, "bob")
    assert store.read(GrantKey("key:a", "docs", accounts.url)).access == before.access
    await accounts.sign_in(owner, "bob")

    assert len(accounts.registered) == 2
    assert accounts.whose[store.read(GrantKey(owner, "docs", accounts.url)).access] == "bob"


async def begun(accounts, owner="key:a", person="ann"):
    """A sign-in at the authorization server's end: the query of the redirect, and the cookies of the browser."""
    made = await UserSignIns().begin(accounts.config(), owner)
    accounts.person = person
    return accounts.approve(made.address).partition("?")[2], {made.cookie: made.secret}


async def refused(accounts, query, cookies):
    with pytest.raises(NoAnswer) as error:
        await UserSignIns().finish(query, cookies, [accounts.config()])
    return str(error.value)


async def test_redirect_in_another_browser_is_refused_and_the_sign_in_can_still_be_finished(accounts, store):
    query, cookies = await begun(accounts)
    _, foreign = await begun(accounts, "key:b", "bob")
    for others in (
        {},
        foreign,
        dict.fromkeys(cookies, ""),
        dict.fromkeys(cookies, "guess"),
        dict.fromkeys(cookies, "é"),
    ):
        assert "belongs to no sign-in" in await refused(accounts, query, others)
    assert accounts.forms == []

    assert await UserSignIns().finish(query, cookies, [accounts.config()]) == ("docs", "key:a")
    assert store.read(GrantKey("key:b", "docs", accounts.url)) is None


async def test_redirect_is_used_once_by_whichever_worker_is_first(accounts):
    query, cookies = await begun(accounts)
    workers = [UserSignIns() for _ in range(5)]
    ends = await asyncio.gather(
        *(each.finish(query, cookies, [accounts.config()]) for each in workers), return_exceptions=True
    )

    assert [each for each in ends if isinstance(each, tuple)] == [("docs", "key:a")]
    assert len(accounts.forms) == 1
    assert "belongs to no sign-in" in await refused(accounts, query, cookies)


async def test_redirect_of_another_authorization_server_or_state_ends_nothing(accounts, store):
    query, cookies = await begun(accounts)
    for other in (
        "",
        "state=",
        "state=guess",
        query + "&state=x",
        "state=" + "%2e%2e%2f",
        "state=*",
        query.replace("state=", "State="),
    ):
        assert "belongs to no sign-in" in await refused(accounts, other, cookies)
    mixed = query.replace("iss=", "iss=https%3A%2F%2Fevil.example%2F")
    assert "another authorization server" in await refused(accounts, mixed, cookies)
    assert accounts.forms == []
    assert store.read(GrantKey("key:a", "docs", accounts.url)) is None


async def test_sign_in_is_over_after_a_while_or_when_the_server_is_another_one(accounts, monkeypatch):
    query, cookies = await begun(accounts)
    moved = replace(accounts.config(), url="https://other.example/mcp")
    with pytest.raises(NoAnswer, match="belongs to no sign-in"):
        await UserSignIns().finish(query, cookies, [moved])
    query, cookies = await begun(accounts)
    monkeypatch.setattr("gateway.proxy.transport.oauth.user_sign_ins.LIFE", -1)
    assert "belongs to no sign-in" in await refused(accounts, query, cookies)


async def test_sign_ins_that_one_owner_has_begun_are_bounded(accounts, store):
    query, cookies = await begun(accounts, "key:b", "bob")
    for _ in range(12):
        await UserSignIns().begin(accounts.config(), "key:a")

    assert len(list(store.folder.glob("begun-*"))) == 8 + 1
    assert await UserSignIns().finish(query, cookies, [accounts.config()]) == ("docs", "key:b")


async def test_files_reveal_and_open_nothing_for_another_owner(accounts, store):
    await accounts.sign_in("key:a", "ann")
    config = accounts.config()
    mine, others = (GrantKey(each, config.name, accounts.url) for each in ("key:a", "key:b"))
    grant = store.read(mine)
    await accounts.sign_in("key:b", "bob")
    files = [each for each in store.folder.iterdir() if each.suffix != ".lock" and each.name != "key"]

    assert all(each.stat().st_mode & 0o077 == 0 for each in files)
    assert not any(secret.encode() in each.read_bytes() for each in files for secret in (grant.access, "key:a", "docs"))
    contents = {each: each.read_bytes() for each in files}
    for each in files:
        for data in contents.values():
            if data != contents[each]:
                each.write_bytes(data)
                assert store.read(others) is None or store.read(others).access != grant.access
        each.write_bytes(contents[each])
