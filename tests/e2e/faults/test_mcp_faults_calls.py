"""Servers that break in the middle of a call, on standard streams, before clients of both eras."""

import json

import anyio
import pytest

pytestmark = pytest.mark.anyio

MiB = 1024 * 1024
ERAS = ["modern", pytest.param("handshake", marks=pytest.mark.faults)]


@pytest.fixture(scope="module")
def rough(tmp_path_factory, run_gateway, faulty):
    """One for all that neither `bad` nor `good` should have to be started anew for.

    `slow` gets half a second for a call. Where the machine is so busy that it does not answer a ping either, it is
    started again, and rightly.
    """
    folder = tmp_path_factory.mktemp("rough")
    quick = "timeout = 0.5\nbreaker_failures = 3\nbreaker_pause = 3.0\n"
    script = faulty()
    words = f"command = {json.dumps(script['command'])}\nargs = {json.dumps(script['args'])}\n"
    (folder / "codec-gateway.toml").write_text(f"[upstreams.slow]\n{words}{quick}")
    with run_gateway(folder, {"bad": script, "good": script}) as running:
        yield running
    started = [entry["server"] for entry in running.log.events("upstream is up")]
    assert set(started) == {"bad", "good", "slow"}
    assert (started.count("bad"), started.count("good")) == (1, 1)
    assert "Traceback" not in running.log.text


@pytest.mark.parametrize("era", ERAS)
async def test_server_killed_in_a_call_breaks_off_that_call_alone_and_is_started_again(
    start_gateway, faulty, client_of, logged, era
):
    gateway = start_gateway({"bad": faulty(), "good": faulty()})
    with anyio.fail_after(60):
        async with client_of(gateway, era) as client:
            broken = await client.call("bad__do", act="die")
            meanwhile = await client.call("good__do", text="still here")
            await logged(gateway, "upstream is up", count=3)
            again = await client.call("bad__do", text="back")

    assert broken.failed
    assert "server 'bad' broke off the call of tool 'do': its process ended (signal 9)" in broken.text
    assert (meanwhile.text, again.text) == ("still here", "back")
    assert gateway.metric("codec_upstream_restarts_total", server="bad") == 1
    assert gateway.metric("codec_upstream_restarts_total", server="good") == 0
    assert "Traceback" not in gateway.log.text


@pytest.mark.faults
async def test_calls_that_run_on_a_server_that_is_killed_all_learn_of_it(start_gateway, faulty, client_of, told):
    gateway = start_gateway({"bad": faulty()})
    answers = []
    with anyio.fail_after(60):
        async with client_of(gateway) as client:

            async def call(act: str) -> None:
                answers.append(await client.call("do", act=act))

            async with anyio.create_task_group() as tasks:
                for _ in range(40):
                    tasks.start_soon(call, "hang")
                await told(gateway, "called hang", 40)
                tasks.start_soon(call, "die")

    assert [answer.failed for answer in answers] == [True] * 41
    assert all("broke off" in answer.text for answer in answers)
    assert gateway.metric("codec_upstream_in_flight", server="bad") == 0


@pytest.mark.parametrize("era", ERAS)
async def test_server_that_hangs_costs_its_time_is_told_to_stop_and_then_left_alone(rough, client_of, told, era):
    cancels = sum("cancelled" in entry["line"] for entry in rough.log.events("upstream stderr"))
    with anyio.fail_after(60):
        async with client_of(rough, era) as client:
            hung = [await client.call("slow__do", act="hang") for _ in range(3)]
            refused = await client.call("slow__do")
            good = await client.call("good__do")
            await told(rough, "cancelled", cancels + 3)
            while (await client.call("slow__do")).failed:
                pass

    assert all("did not answer the call of tool 'do' within 0.5 s; it was told to stop" in each.text for each in hung)
    assert refused.failed
    assert "failed 3 times in a row and is not called for another" in refused.text
    assert good.text == "done"
    assert rough.metric("codec_upstream_breaker", server="slow") == 0


@pytest.mark.faults
async def test_server_that_reads_no_more_is_given_up_on_time_and_stops_no_other(
    start_gateway, faulty, client_of, own, told
):
    own("[limits]\ntool_timeout = 0.3\n")
    gateway = start_gateway({"bad": faulty(), "good": faulty()})
    with anyio.fail_after(60):
        async with client_of(gateway) as client:
            deaf = await client.call("bad__do", act="deaf")
            # More than a pipe holds.
            stuck = [await client.call("bad__do", text="x" * 200_000) for _ in range(2)]
            good = await client.call("good__do")

    assert [each.failed for each in (deaf, *stuck, good)] == [True, True, True, False]


@pytest.mark.parametrize("era", ERAS)
async def test_flood_of_notifications_ends_with_the_answer_and_holds_up_no_other_client(
    rough, client_of, memory_of, era
):
    before = memory_of(rough.process.pid)
    answers: list[str] = []
    with anyio.fail_after(90):
        async with client_of(rough, era) as one, client_of(rough, era) as other, anyio.create_task_group() as tasks:

            async def flooded() -> None:
                answers.append((await one.call("bad__do", act="flood", count=20_000)).text)

            tasks.start_soon(flooded)
            for number in range(10):
                answers.append((await other.call("good__do", text=str(number))).text)  # noqa: PERF401 - both append

    assert answers == [*map(str, range(10)), "flooded"]
    assert memory_of(rough.process.pid) - before < 32 * MiB


@pytest.mark.faults
async def test_endless_flood_is_cut_off_by_the_time_of_the_call(start_gateway, faulty, client_of, memory_of, own):
    own("[limits]\ntool_timeout = 1.0\n")
    gateway = start_gateway({"bad": faulty(), "good": faulty()})
    before = memory_of(gateway.process.pid)
    with anyio.fail_after(60):
        async with client_of(gateway) as client:
            flooded = await client.call("bad__do", act="flood", count=10**9)
            good = await client.call("good__do")

    assert "did not answer" in flooded.text
    assert good.text == "done"
    assert memory_of(gateway.process.pid) - before < 32 * MiB


async def test_garbage_between_messages_is_logged_without_its_control_characters_and_hurts_no_call(rough, client_of):
    with anyio.fail_after(60):
        async with client_of(rough, "modern") as client:
            answers = [(await client.call("bad__do", act="garbage")).text for _ in range(3)]

    assert answers == ["sorry"] * 3
    assert rough.log.events("not a JSON-RPC message")
    assert "\x1b" not in rough.log.text


async def test_line_of_a_mebibyte_without_its_end_costs_one_call_and_the_next_one_is_answered(rough, client_of):
    with anyio.fail_after(60):
        async with client_of(rough, "modern") as client:
            half = await client.call("slow__do", act="partial", bytes=MiB)
            rest = await client.call("slow__do", act="rest")
            after = await client.call("slow__do")

    assert "did not answer" in half.text
    assert (rest.text, after.text) == ("rest", "done")


@pytest.mark.faults
async def test_line_that_never_ends_is_not_kept_beyond_the_bound(start_gateway, faulty, client_of, memory_of, own):
    own("[limits]\ntool_timeout = 3.0\nresult_bytes = 1000000\n")
    gateway = start_gateway({"bad": faulty()})
    before = memory_of(gateway.process.pid)
    with anyio.fail_after(60):
        async with client_of(gateway) as client:
            half = await client.call("do", act="partial", bytes=64 * MiB)
            held = memory_of(gateway.process.pid) - before
            rest = await client.call("do", act="rest")

    assert half.failed
    assert rest.text == "rest"
    assert held < 16 * MiB


async def test_result_of_64_mebibytes_is_refused_by_name_and_the_next_call_is_answered(rough, client_of, memory_of):
    before = memory_of(rough.process.pid)
    with anyio.fail_after(90):
        async with client_of(rough, "modern") as client:
            refused = await client.call("bad__do", act="big", bytes=64 * MiB)
            after = await client.call("bad__do")

    assert refused.failed
    assert "over the limit (limits.result_bytes)" in refused.text
    assert after.text == "done"
    assert memory_of(rough.process.pid) - before < 32 * MiB


@pytest.mark.parametrize(
    ("transport", "era"),
    [("stdio", "handshake"), pytest.param("http", "modern", marks=pytest.mark.faults)],
)
async def test_result_of_64_mebibytes_passes_whole_where_it_is_allowed(
    start_gateway, faulty, faulty_http, client_of, transport, era
):
    entry = faulty() if transport == "stdio" else faulty_http()[0]
    gateway = start_gateway({"big": entry}, env={"CODEC_GATEWAY_LIMITS__RESULT_BYTES": str(100 * MiB)})
    with anyio.fail_after(90):
        async with client_of(gateway, era) as client:
            answer = await client.call("do", act="big", bytes=64 * MiB)
            after = await client.call("do")

    assert (len(answer.text), set(answer.text)) == (64 * MiB, {"x"})
    assert after.text == "done"
