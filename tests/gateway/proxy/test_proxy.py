"""The proxy against real processes, honest and hostile."""

import json
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import ConfigError, RpcError, UnknownTool
from gateway.observe.metrics import Metrics

pytestmark = pytest.mark.anyio


def text_of(result):
    assert result["isError"] is True
    return result["content"][0]["text"]


def calls_counted(metrics: Metrics, outcome: str) -> float:
    return metrics.registry.get_sample_value("codec_tool_calls_total", {"server": "up", "outcome": outcome}) or 0.0


async def test_result_passes_with_fields_that_no_schema_knows(upstream, proxy_of):
    async with proxy_of(upstream("echo")) as proxy:
        result = await proxy.call("up__echo", {"q": [1, None]})

    structured = result.pop("structuredContent")
    assert result == {
        "content": [
            {"type": "text", "text": "hello", "x-vendor": 1, "_meta": {"com.example/k": {"a": None}, "n": None}},
            {"type": "hologram", "beams": [1, None]},
        ],
        "x-result": None,
        "_meta": {"com.example/r": None},
    }
    assert structured["params"] == {"name": "echo", "arguments": {"q": [1, None]}}


async def test_tool_definition_keeps_unknown_fields_and_gets_the_public_name(upstream, proxy_of):
    async with proxy_of(upstream("echo")) as proxy:
        (entry,) = proxy.tools()

    assert (entry.name, entry.server, entry.tool) == ("up__echo", "up", "echo")
    assert entry.definition["name"] == "up__echo"
    assert entry.definition["x-vendor"] == {"deep": None}
    assert entry.definition["execution"] == {"taskSupport": "forbidden"}


async def test_meta_travels_less_the_keys_of_the_clients_own_hop(upstream, proxy_of):
    meta = {
        "com.example/trace": {"a": None},
        "traceparent": "00-1-2-01",
        "progressToken": 7,
        "ai.codec/map": "sha256:00",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {},
    }
    async with proxy_of(upstream("echo")) as proxy:
        result = await proxy.call("up__echo", {}, meta=meta)

    assert result["structuredContent"]["params"]["_meta"] == {
        "com.example/trace": {"a": None},
        "traceparent": "00-1-2-01",
        # The session's own, since two clients may use the same.
        "progressToken": 1,
    }


async def test_child_does_not_see_our_environment(upstream, proxy_of, monkeypatch):
    monkeypatch.setenv("OUR_SECRET", "hunter2")
    async with proxy_of(upstream("echo")) as proxy:
        result = await proxy.call("up__echo", {})

    assert result["structuredContent"]["secret"] is None


async def test_child_sees_what_it_may_inherit(upstream, proxy_of, monkeypatch):
    monkeypatch.setenv("OUR_SECRET", "hunter2")
    async with proxy_of(replace(upstream("echo"), inherit_env=("OUR_*",))) as proxy:
        result = await proxy.call("up__echo", {})

    assert result["structuredContent"]["secret"] == "hunter2"


async def test_bad_upstreams_neither_raise_nor_hide_the_good_one(upstream, proxy_of):
    missing = UpstreamConfig(name="missing", command="/no/such/program")
    async with proxy_of(upstream("dies_at_start", name="dead"), missing, upstream("echo")) as proxy:
        assert [entry.name for entry in proxy.tools()] == ["up__echo"]
        dead, gone, up = proxy.statuses()

    assert (dead.state, gone.state, up.state) == ("restarting", "restarting", "up")
    assert dead.last_error == "its process ended (exit code 3)"
    assert (
        gone.last_error
        == "its command '/no/such/program' does not exist or is not on PATH: install it, or give its whole path"
    )
    assert (up.tools, up.last_error, up.restarts, up.protocol, up.transport) == (1, None, 0, "2025-11-25", "stdio")


async def test_call_to_a_server_that_never_came_up_is_an_error_result_that_names_it(upstream, proxy_of):
    async with proxy_of(upstream("dies_at_start", name="dead")) as proxy:
        text = text_of(await proxy.call("dead__anything", {}))

    assert "'dead' is not available" in text


async def test_unknown_tool_is_raised_with_its_name(upstream, proxy_of):
    async with proxy_of(upstream("echo")) as proxy:
        with pytest.raises(UnknownTool, match="unknown tool 'up__nope'"):
            await proxy.call("up__nope", {})


async def test_death_in_the_middle_of_a_call_is_told_at_once_and_the_server_comes_back(upstream, proxy_of, until):
    metrics = Metrics()
    async with proxy_of(upstream("dies_in_call"), metrics=metrics, tool_timeout=3600.0) as proxy:
        with anyio.fail_after(20):
            text = text_of(await proxy.call("up__echo", {}))
        await until(proxy, lambda: proxy.statuses()[0].state == "up" and proxy.statuses()[0].restarts > 0)

    assert text == "server 'up' broke off the call of tool 'echo': its process ended (exit code 1)"
    assert calls_counted(metrics, "unavailable") == 1
    assert metrics.registry.get_sample_value("codec_upstream_restarts_total", {"server": "up"}) >= 1


async def test_gauge_says_whether_a_server_answers(upstream, proxy_of):
    metrics = Metrics()
    async with proxy_of(upstream("echo"), upstream("dies_at_start", name="dead"), metrics=metrics):
        during = [metrics.registry.get_sample_value("codec_upstream_up", {"server": name}) for name in ("up", "dead")]

    assert during == [1, 0]
    assert metrics.registry.get_sample_value("codec_upstream_up", {"server": "up"}) == 0


async def test_call_while_the_server_is_away_fails_at_once_and_names_the_cause(upstream, proxy_of, until):
    limits = {"restart_backoff": 3600.0, "restart_backoff_max": 3600.0, "tool_timeout": 3600.0}
    async with proxy_of(upstream("dies_in_call"), **limits) as proxy:
        with anyio.fail_after(20):
            await proxy.call("up__echo", {})
            await until(proxy, lambda: proxy.statuses()[0].state == "restarting")
            text = text_of(await proxy.call("up__echo", {}))

    assert "server 'up' is not available: its process ended" in text
    assert proxy.tools() == ()


async def test_call_over_its_time_is_an_error_result_and_the_server_is_told(upstream, proxy_of, noted_words):
    metrics = Metrics()
    async with proxy_of(upstream("hangs"), metrics=metrics) as proxy:
        text = text_of(await proxy.call("up__echo", {}, timeout=0.3))

    assert "server 'up' did not answer the call of tool 'echo' within 0.3 s" in text
    assert noted_words() == ["notifications/initialized", "called", "notifications/cancelled"]
    assert calls_counted(metrics, "timeout") == 1


async def test_cancelled_call_is_cancelled_upstream(upstream, proxy_of, noted_words):
    async with proxy_of(upstream("hangs")) as proxy:
        with anyio.move_on_after(0.3):
            await proxy.call("up__echo", {})

    assert noted_words()[-1] == "notifications/cancelled"


async def test_server_that_stops_reading_holds_up_no_call_beyond_its_time(upstream, proxy_of):
    async with proxy_of(upstream("deaf", protocol="handshake")) as proxy:
        with anyio.fail_after(20):
            texts = [text_of(await proxy.call("up__echo", {"x": "y" * 1_000_000}, timeout=0.2)) for _ in range(3)]

    assert all("did not answer" in text for text in texts)


async def test_server_that_hangs_with_open_pipes_is_noticed_by_a_ping_and_started_again(
    upstream, proxy_of, until, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance.PING_TIME", 0.3)
    async with proxy_of(upstream("hangs_once")) as proxy:
        text = text_of(await proxy.call("up__echo", {}, timeout=0.2))
        with anyio.fail_after(20):
            await until(proxy, lambda: proxy.statuses()[0].state == "up" and proxy.statuses()[0].restarts > 0)
            result = await proxy.call("up__echo", {})
        (status,) = proxy.statuses()

    assert "did not answer the call of tool 'echo'" in text
    assert status.last_error == "it did not answer a ping"
    assert result == {"content": []}


async def test_server_that_answers_a_ping_is_kept_after_a_call_ran_out_of_time(upstream, proxy_of):
    async with proxy_of(upstream("waits")) as proxy:
        with anyio.fail_after(20):
            await proxy.call("up__echo", {"wait": True}, timeout=0.2)
            for _ in range(20):
                await proxy.call("up__echo", {})
        (status,) = proxy.statuses()

    assert (status.state, status.restarts, status.last_error) == ("up", 0, None)


async def test_calls_to_a_deaf_server_leave_no_growing_heap_of_tasks(upstream, proxy_of):
    # Without a breaker: it would keep most of the calls from being made.
    async with proxy_of(upstream("deaf", protocol="handshake", breaker_failures=0)) as proxy:
        for _ in range(25):
            await proxy.call("up__echo", {"x": "y" * 1_000_000}, timeout=0.01)
        before = len(anyio.get_running_tasks())
        for _ in range(25):
            await proxy.call("up__echo", {}, timeout=0.01)
        after = len(anyio.get_running_tasks())

    assert after <= before


async def test_many_calls_run_at_the_same_time(upstream, proxy_of):
    async with proxy_of(upstream("hangs", name="slow"), upstream("echo")) as proxy, anyio.create_task_group() as tasks:
        tasks.start_soon(proxy.call, "slow__echo", {})
        with anyio.fail_after(20):
            for _ in range(5):
                await proxy.call("up__echo", {})
        tasks.cancel_scope.cancel()


async def test_garbage_lines_do_not_break_the_connection(upstream, proxy_of):
    async with proxy_of(upstream("garbage")) as proxy:
        assert await proxy.call("up__echo", {"answer": True}) == {"content": []}
        assert proxy.statuses()[0].restarts == 0


async def test_garbage_instead_of_an_answer_ends_with_the_calls_time(upstream, proxy_of):
    async with proxy_of(upstream("garbage")) as proxy:
        text = text_of(await proxy.call("up__echo", {}, timeout=0.3))
        assert await proxy.call("up__echo", {"answer": True}) == {"content": []}

    assert "did not answer" in text


@pytest.mark.parametrize("text", ["a\\ud800b", "a\\udc00b"])
async def test_answer_with_half_a_surrogate_pair_arrives_with_a_replacement_character(upstream, proxy_of, text):
    async with proxy_of(upstream("writes"), tool_timeout=3600.0) as proxy:
        with anyio.fail_after(20):
            result = await proxy.call("up__echo", {"text": f'"{text}"'})

    assert result == {"content": [{"type": "text", "text": "a\ufffdb"}]}


async def test_answer_that_can_be_read_in_no_way_ends_its_call_at_once(upstream, proxy_of):
    async with proxy_of(upstream("writes"), tool_timeout=3600.0) as proxy:
        with anyio.fail_after(20):
            text = text_of(await proxy.call("up__echo", {"text": "[" * 400 + "]" * 400}))
            fine = await proxy.call("up__echo", {"text": '"fine"'})

    assert text.startswith("server 'up' broke off the call of tool 'echo': its answer is not a JSON-RPC response")
    assert fine == {"content": [{"type": "text", "text": "fine"}]}


@pytest.mark.parametrize("size", [2_000, 300_000])
@pytest.mark.parametrize("order", ["id-first", "id-last"])
async def test_result_over_the_limit_is_an_error_result_and_the_connection_lives(upstream, proxy_of, size, order):
    async with proxy_of(upstream("huge"), result_bytes=1000, tool_timeout=3600.0) as proxy:
        with anyio.fail_after(20):
            text = text_of(await proxy.call("up__echo", {"bytes": size, "order": order}))
            small = await proxy.call("up__echo", {"bytes": 900, "order": order})

    assert "'up'" in text
    assert "limits.result_bytes" in text
    assert small["content"][0]["text"] == "x" * 900


async def test_server_that_does_not_shake_hands_is_given_up(upstream, proxy_of, noted_pids, is_running):
    limits = {"restart_backoff": 3600.0, "restart_backoff_max": 3600.0}
    async with proxy_of(upstream("silent"), start_timeout=0.5, **limits) as proxy:
        text = text_of(await proxy.call("up__echo", {}))

    assert "'up' is not available" in text
    assert "within 0.5 s (limits.start_timeout)" in text
    assert not any(is_running(pid) for pid in noted_pids())


async def test_changed_tools_are_listed_anew_and_told(upstream, proxy_of, until, client):
    async with proxy_of(upstream("changes_tools")) as proxy:
        before = [await proxy.handle("tools/list", {}, client()) for _ in range(2)]
        await proxy.call("up__echo", {})
        await until(proxy, lambda: len(proxy.tools()) == 2)
        after = await proxy.handle("tools/list", {}, client())
        assert [len(listed["tools"]) for listed in (*before, after)] == [1, 1, 2]
        assert [entry.tool for entry in proxy.tools()] == ["echo", "echo1"]
        await proxy.call("up__echo1", {})


async def test_server_that_tells_of_changes_after_each_listing_is_listed_once_a_pause(
    upstream, proxy_of, noted_words, monkeypatch
):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance.LISTING_PAUSE", 3600.0)
    async with proxy_of(upstream("restless", protocol="handshake")) as proxy:
        for _ in range(50):
            await proxy.call("up__echo", {})

    assert noted_words() == ["listed"] * 2


async def test_server_whose_lists_take_long_to_take_over_is_listed_seldom(upstream, proxy_of, noted_words, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance.LISTING_PAUSE", 0.0)
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance._REST", 1e12)
    async with proxy_of(upstream("restless", protocol="handshake")) as proxy:
        for _ in range(50):
            await proxy.call("up__echo", {})

    assert noted_words() == ["listed"] * 2


async def test_change_within_the_pause_is_listed_after_it(upstream, proxy_of, until, monkeypatch):
    monkeypatch.setattr("gateway.proxy.upstream.supervision.maintenance.LISTING_PAUSE", 0.2)
    async with proxy_of(upstream("changes_tools")) as proxy:
        await proxy.call("up__echo", {})
        await until(proxy, lambda: len(proxy.tools()) == 2)
        await proxy.call("up__echo", {})
        await until(proxy, lambda: len(proxy.tools()) == 3)


async def test_definitions_over_the_limit_in_all_are_given_up_though_each_page_is_within_it(upstream, proxy_of):
    limits = {"restart_backoff": 3600.0, "restart_backoff_max": 3600.0, "result_bytes": 100_000}
    async with proxy_of(upstream("pages", "verbose", protocol="handshake"), **limits) as proxy:
        (status,) = proxy.statuses()

    assert "describes its tools in more than 100000 bytes (limits.result_bytes)" in (status.last_error or "")


@pytest.mark.parametrize("code", [-32000, -32001, -32602])
async def test_json_rpc_error_of_the_server_is_raised_unchanged(upstream, proxy_of, code):
    metrics = Metrics()
    async with proxy_of(upstream("refuses"), metrics=metrics) as proxy:
        with pytest.raises(RpcError, match="quota") as raised:
            await proxy.call("up__echo", {"code": code})

    assert (raised.value.error["code"], raised.value.error["data"]) == (code, {"left": 0})
    assert calls_counted(metrics, "refused") == 1


async def test_old_server_is_listed_page_by_page(upstream, proxy_of):
    async with proxy_of(upstream("pages", protocol="handshake")) as proxy:
        assert [entry.name for entry in proxy.tools()] == ["up__tool0", "up__tool1", "up__tool2"]
        assert proxy.statuses()[0].protocol == "2024-11-05"


async def test_list_without_end_is_given_up(upstream, proxy_of):
    async with proxy_of(
        upstream("pages", "endless", protocol="handshake"), restart_backoff=3600.0, restart_backoff_max=3600.0
    ) as proxy:
        assert proxy.tools() == ()
        assert "lists too many tools" in (proxy.statuses()[0].last_error or "")


async def test_what_a_server_asks_of_us_is_refused_as_unknown_and_a_ping_is_answered(upstream, proxy_of):
    async with proxy_of(upstream("asks_back")) as proxy:
        with anyio.fail_after(20):
            result = await proxy.call("up__echo", {})

    *refused, pong = result["structuredContent"]["answers"]
    assert [answer["error"]["code"] for answer in refused] == [-32601, -32601, -32601]
    assert pong["result"] == {}


async def test_two_tools_of_one_public_name_end_the_start_and_both_servers_are_named(upstream, proxy_of):
    first, second = upstream("echo", name="a b"), upstream("echo", name="a.b")

    with pytest.raises(ConfigError, match=r"tool 'a_b__echo' is offered by server 'a b' and by server 'a\.b': rename"):
        await proxy_of(first, second).__aenter__()


async def test_stderr_of_a_child_goes_to_the_log_with_its_control_characters_escaped(upstream, proxy_of, caplog, capfd):
    caplog.set_level("INFO", "gateway.proxy")
    async with proxy_of(upstream("dies_at_start"), restart_backoff=3600.0, restart_backoff_max=3600.0):
        pass

    lines = [record.msg["line"] for record in caplog.records if record.msg.get("event") == "upstream stderr"]
    assert lines == ["no licence\\x1b[31m found"]
    assert capfd.readouterr().out == ""


async def test_leaving_ends_every_process_even_one_that_will_not_go(upstream, proxy_of, noted_pids, is_running):
    async with proxy_of(upstream("echo", name="good"), upstream("stubborn")) as proxy:
        assert len(proxy.tools()) == 2
        pids = noted_pids()
        assert len(pids) == 3
        assert all(is_running(pid) for pid in pids)

    assert not any(is_running(pid) for pid in pids)


@pytest.mark.parametrize("mode", ["", "ignores-term"])
async def test_leaving_ends_what_a_server_left_behind_that_went_by_itself(
    upstream, proxy_of, noted_pids, is_running, mode
):
    async with proxy_of(upstream("leaves_orphan", mode)) as proxy:
        assert len(proxy.tools()) == 1
        pids = noted_pids()
        assert len(pids) == 2
        assert all(is_running(pid) for pid in pids)

    # A killed process needs a moment to be gone, and nobody is told: it is not our child.
    with anyio.fail_after(20):
        while any(is_running(pid) for pid in pids):
            await anyio.lowlevel.checkpoint()


async def test_leaving_by_an_exception_raises_that_exception_and_ends_the_processes(
    upstream, proxy_of, noted_pids, is_running
):
    with pytest.raises(ZeroDivisionError):
        async with proxy_of(upstream("echo")):
            raise ZeroDivisionError

    assert not any(is_running(pid) for pid in noted_pids())


async def test_no_descriptor_is_left_open(upstream, proxy_of, descriptors):
    async with proxy_of(upstream("echo"), upstream("dies_at_start", name="dead")):
        pass
    before = descriptors()
    for _ in range(3):
        async with proxy_of(upstream("echo"), upstream("dies_at_start", name="dead")):
            pass

    assert descriptors() <= before


async def test_results_are_plain_json(upstream, proxy_of):
    async with proxy_of(upstream("echo")) as proxy:
        result = await proxy.call("up__echo", {"big": 2**70, "x": 1.5})

    assert json.loads(json.dumps(result)) == result
    assert result["structuredContent"]["params"]["arguments"] == {"big": 2**70, "x": 1.5}
