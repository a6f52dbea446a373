"""Servers over HTTP that break in the middle of a call."""

import anyio
import pytest

pytestmark = pytest.mark.anyio

MiB = 1024 * 1024
ERAS = ["modern", pytest.param("handshake", marks=pytest.mark.faults)]


@pytest.mark.parametrize("era", ERAS)
async def test_http_server_killed_in_a_call_is_named_and_used_again_when_it_is_back(
    start_gateway, faulty_http, client_of, logged, own, era
):
    entry, process = faulty_http()
    gateway = start_gateway({"far": entry}, env={"CODEC_GATEWAY_LIMITS__RESTART_BACKOFF_MAX": "0.5"})
    with anyio.fail_after(60):
        async with client_of(gateway, era) as client:
            broken = await client.call("do", act="die")
            process.wait(10)
            gone = await client.call("do")
            faulty_http(int(entry["url"].split(":")[2].split("/")[0]))
            await logged(gateway, "upstream is up", count=2)
            again = await client.call("do", text="back")

    assert broken.failed
    assert gone.failed
    assert "server 'far'" in broken.text
    assert "server 'far'" in gone.text
    assert again.text == "back"


@pytest.mark.faults
async def test_results_over_the_limit_over_http_are_refused_by_name_however_many(
    start_gateway, faulty_http, client_of, memory_of
):
    gateway = start_gateway({"big": faulty_http()[0]})
    before = memory_of(gateway.process.pid)
    with anyio.fail_after(90):
        async with client_of(gateway, "handshake") as client:
            answers = [await client.call("do", act="big", bytes=64 * MiB) for _ in range(5)]
            after = await client.call("do")

    assert all(answer.failed and "over the limit (limits.result_bytes)" in answer.text for answer in answers)
    assert after.text == "done"
    assert memory_of(gateway.process.pid) - before < 64 * MiB


async def test_answers_over_http_that_nobody_can_read_fail_their_calls_alone(start_gateway, faulty_http, client_of):
    gateway = start_gateway({"far": faulty_http()[0]})
    with anyio.fail_after(60):
        async with client_of(gateway, "modern") as client:
            broken = [await client.call("do", act=act) for act in ("cut", "garbage")]
            after = await client.call("do")

    assert all(each.failed and "server 'far' broke off the call of tool 'do'" in each.text for each in broken)
    assert after.text == "done"


@pytest.mark.faults
async def test_endless_stream_over_http_is_cut_off_by_the_time_of_the_call(
    start_gateway, faulty_http, client_of, memory_of, own
):
    own("[limits]\ntool_timeout = 1.0\n")
    entry, process = faulty_http()
    gateway = start_gateway({"far": entry, "good": faulty_http()[0]})
    before = memory_of(gateway.process.pid)
    with anyio.fail_after(60):
        async with client_of(gateway) as client:
            dripped = await client.call("far__do", act="drip")
            good = await client.call("good__do")
            heard = [await anyio.to_thread.run_sync(process.stderr.readline) for _ in range(3)]

    assert "did not answer" in dripped.text
    assert good.text == "done"
    # The notification comes over a connection of its own: whether it is first is the scheduler's choice.
    assert sorted(heard) == ["called drip\n", "cancelled\n", "cut off\n"]
    assert memory_of(gateway.process.pid) - before < 32 * MiB
