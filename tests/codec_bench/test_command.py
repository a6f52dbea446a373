"""`codec-gateway bench` before servers of every kind: what it prints and writes, its bounds, and what it never does."""

import asyncio
import gzip
import json
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codec_bench.presets import PRESETS
from gateway.cli import exit_codes

EVIL = "\x1b[2J<b>&evil\u202e"


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def text(*words: str) -> bytes:
    return b"".join(event(choices=[{"delta": {"content": word}, "finish_reason": None}]) for word in words)


END = event(
    choices=[{"delta": {}, "finish_reason": "length"}],
    usage={"prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}},
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
GOOD = HEAD + b"\r\n" + text("a", "b", "c") + END + b"data: [DONE]\n\n"


def whole(status: str, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n".encode() + body


class Server:
    """A server whose answers a test writes."""

    def __init__(self) -> None:
        self.url = ""
        self.answer: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]] = GOOD
        self.heads: list[bytes] = []
        self.bodies: list[dict[str, Any]] = []
        self.at_a_time = self.most_at_a_time = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            if head.startswith(b"GET"):
                writer.write(whole("200 OK", json.dumps({"data": [{"id": f"m{EVIL}\ud800"}]}).encode()))
                return
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            self.bodies.append(json.loads(await reader.readexactly(length)))
            self.at_a_time += 1
            self.most_at_a_time = max(self.at_a_time, self.most_at_a_time)
            try:
                if isinstance(self.answer, bytes):
                    await asyncio.sleep(0.002)  # noqa: TID251 - others get their turn
                    writer.write(self.answer)
                else:
                    await self.answer(writer)
                await writer.drain()
            finally:
                self.at_a_time -= 1
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
def serve() -> Iterator[Callable[[], Server]]:
    """Starts servers in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    listeners: list[asyncio.Server] = []

    def start() -> Server:
        server = Server()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(server.serve, "127.0.0.1", 0), loop).result()
        listeners.append(listening)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        return server

    async def end() -> None:
        for listening in listeners:
            listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    yield start
    asyncio.run_coroutine_threadsafe(end(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


SHORT = ("--prompt-tokens", "20", "--answer-tokens", "3")


def test_servers_take_turns_and_are_compared(serve, command, tmp_path: Path) -> None:
    one, other = serve(), serve()
    files = ("--json", tmp_path / "r.json", "--svg", tmp_path / "r.svg")

    ran = command("bench", one.url, other.url, *SHORT, "--requests", "8", "--warmup", "2", *files)

    assert ran.code == exit_codes.OK, ran.err
    report = json.loads((tmp_path / "r.json").read_text())
    assert [server["answered"] for server in report["servers"]] == [8, 8]
    assert report["comparisons"][0]["text"] == {"same": 8, "other": 0}
    assert report["comparisons"][0]["ratios"]["first"]["pairs"] == 8
    assert report["servers"][0]["prompt"] == {"told": 8, "tokens": 160, "cached": 40, "processed": 120, "reused": 0.25}
    assert report["servers"][0]["body_bytes"]["p50"] == len(GOOD.partition(b"\r\n\r\n")[2])
    assert report["servers"][0]["socket_bytes"]["p50"] == len(GOOD)
    assert len(report["samples"]) == 16
    # The same is asked of both, and each conversation is another one.
    assert one.bodies == other.bodies
    assert len({body["messages"][0]["content"] for body in one.bodies}) == 10
    assert one.most_at_a_time == other.most_at_a_time == 1
    assert "8 of 8" in ran.out
    assert "25.0%" in ran.out
    assert (tmp_path / "r.svg").read_text().startswith("<svg ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "r.svg"]


def test_same_seed_asks_the_same_and_another_something_else(serve, command) -> None:
    asked: list[list[dict[str, Any]]] = []
    for seed in ("4", "4", "5"):
        server = serve()
        assert command("bench", server.url, *SHORT, "--requests", "3", "--seed", seed).code == exit_codes.OK
        asked.append(server.bodies)

    assert asked[0] == asked[1] != asked[2]


def test_clients_ask_at_a_time_one_server_after_the_other(serve, command) -> None:
    one, other = serve(), serve()
    both: list[int] = []

    async def slow(writer: asyncio.StreamWriter) -> None:
        both.append(min(one.at_a_time, other.at_a_time))
        await asyncio.sleep(0.03)  # noqa: TID251 - so that clients meet
        writer.write(GOOD)

    one.answer = other.answer = slow
    ran = command("bench", one.url, other.url, *SHORT, "--requests", "12", "--clients", "4")

    assert ran.code == exit_codes.OK
    assert (one.most_at_a_time, other.most_at_a_time) == (4, 4)
    assert set(both) == {0}


def test_times_of_an_open_loop_count_from_when_a_request_was_due(serve, command, tmp_path: Path) -> None:
    server = serve()
    turn = asyncio.Lock()

    async def one_by_one(writer: asyncio.StreamWriter) -> None:
        async with turn:
            await asyncio.sleep(0.05)  # noqa: TID251 - what one answer takes
            writer.write(GOOD)

    server.answer = one_by_one
    result = tmp_path / "r.json"
    ran = command("bench", server.url, *SHORT, "--rate", "200", "--requests", "10", "--warmup", "0", "--json", result)

    assert ran.code == exit_codes.OK
    report = json.loads(result.read_text())
    # Requests come ten times as fast as they are answered: the last waits for all before it.
    assert report["servers"][0]["first_ms"]["most"] > 400


def test_conversation_goes_on_from_what_was_answered(serve, command) -> None:
    server = serve()

    assert command("bench", server.url, *SHORT, "--requests", "6", "--turns", "3", "--warmup", "0").code == 0

    assert [len(body["messages"]) for body in server.bodies] == [1, 3, 5, 1, 3, 5]
    assert server.bodies[1]["messages"][1] == {"role": "assistant", "content": "abc"}


def test_trace_is_asked_as_it_was_recorded(serve, command, tmp_path: Path) -> None:
    server = serve()
    lines = [{"messages": [{"role": "user", "content": f"q{n}"}], "answer_tokens": n, "at": n / 100} for n in (1, 2, 3)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))

    assert command("bench", server.url, "--trace", tmp_path / "t.jsonl", "--warmup", "0").code == exit_codes.OK

    assert sorted(body["max_tokens"] for body in server.bodies) == [1, 2, 3]
    assert {body["messages"][0]["content"] for body in server.bodies} == {"q1", "q2", "q3"}


def test_preset_asks_for_its_lengths_in_turns_and_tells_figures_by_them(serve, command, tmp_path: Path) -> None:
    one, other = serve(), serve()
    choice = {"text": "abc", "finish_reason": "length"}
    usage = {"prompt_tokens": 16, "completion_tokens": 3}
    one.answer = other.answer = HEAD + b"\r\n" + event(choices=[choice], usage=usage) + b"data: [DONE]\n\n"

    ran = command("bench", one.url, other.url, "--preset", "timed", "--json", tmp_path / "r.json")

    assert ran.code == exit_codes.OK, ran.err
    assert [body["max_tokens"] for body in one.bodies] == [64, *[64, 512, 2048] * 3]
    assert one.bodies == other.bodies
    assert one.heads[-1].startswith(b"POST /v1/completions ")
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["workload"]["preset"] == "timed"
    assert [(row["url"], row["answer_tokens"], row["answered"]) for row in report["by_answer"]] == [
        (f"{server.url}/v1", tokens, 3) for server in (one, other) for tokens in (64, 512, 2048)
    ]
    assert report["by_answer"][0]["bytes_a_token"]["p50"] == pytest.approx(
        report["by_answer"][0]["socket_bytes"]["p50"] / 3
    )
    assert "medians by the number of tokens asked for" in ran.out


def test_preset_of_one_length_has_no_figures_by_length_and_takes_other_bounds(serve, command, tmp_path: Path) -> None:
    server = serve()

    ran = command("bench", server.url, "--preset", "handoff-ids", "--requests", "2", "--json", tmp_path / "r.json")

    assert ran.code == exit_codes.OK, ran.err
    assert [len(body["prompt"]) for body in server.bodies] == [1024] * 3
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["by_answer"] == []
    assert report["plan"]["requests"] == 2
    assert report["plan"]["seconds"] == 1800
    assert "by the number of tokens" not in ran.out


def test_help_lists_the_presets(command) -> None:
    ran = command("bench", "--help")

    for name in PRESETS:
        assert name in " ".join(ran.out.replace("│", " ").split())


def test_bytes_are_counted_before_and_after_they_are_decompressed(serve, command, tmp_path: Path) -> None:
    server = serve()
    body = GOOD.partition(b"\r\n\r\n")[2]
    packed = gzip.compress(body)
    server.answer = HEAD + b"content-encoding: gzip\r\n\r\n" + packed

    ran = command("bench", server.url, *SHORT, "--requests", "2", "--json", tmp_path / "r.json")

    assert ran.code == exit_codes.OK
    (told,) = json.loads((tmp_path / "r.json").read_text())["servers"]
    assert told["body_bytes"]["p50"] == len(packed)
    assert told["decoded_bytes"]["p50"] == len(body)
    assert b"accept-encoding: gzip" in server.heads[-1]


def test_whole_answers_and_completions_are_asked_for_too(serve, command) -> None:
    server = serve()
    choice = {"text": "abc", "message": {"content": "abc"}, "finish_reason": "stop", "token_ids": [1]}
    server.answer = whole("200 OK", json.dumps({"choices": [choice]}).encode())

    ran = command("bench", server.url, *SHORT, "--requests", "2", "--whole", "--ids", "--api", "completions")

    assert ran.code == exit_codes.OK, ran.out
    assert server.heads[-1].startswith(b"POST /v1/completions ")
    assert server.bodies[-1]["stream"] is False
    assert server.bodies[-1]["return_token_ids"] is True


async def _drip(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n" + text("a"))
    while True:
        await asyncio.sleep(0.01)  # noqa: TID251 - never an end
        writer.write(b": still here\n\n")
        await writer.drain()


async def _babble(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"\r\n")
    while not writer.is_closing():
        writer.write(text("word") * 2000)
        await writer.drain()


async def _silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)  # noqa: TID251 - longer than anybody waits


BOMB = HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"\n" * (1 << 26))


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        (HEAD + b"\r\n" + text("a", "b"), "broke off"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\ndata", "broke off"),
        (b"", "broke off"),
        (HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(GOOD)[:-9], "not an answer"),
        (HEAD + b"content-encoding: deflate\r\n\r\nx", "not an answer"),
        (HEAD + b"\r\n" + event(error={"message": EVIL}), "told an error"),
        (whole("200 OK", b"<html>hello</html>", "text/html"), "not an answer"),
        (whole("200 OK", b"<html>", "text/event-stream"), "broke off"),
        (whole("200 OK", EVIL.encode()), "not an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "not an answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "not an answer"),
        (whole("302 Found", b"", more="location: http://127.0.0.1:1/stolen\r\n"), "redirect 302"),
        (whole("500 Oh", json.dumps({"error": {"message": EVIL}}).encode()), "http 500"),
        (whole("429 Slow", EVIL.encode(), "text/plain"), "http 429"),
        (whole("500 Oh", b"x" * 1_000_000), "http 500"),
        (_drip, "timeout"),
        (_silent, "timeout"),
        (_babble, "too large"),
        (BOMB, "too large"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_servers_that_do_not_answer_are_counted_by_kind_and_never_printed_raw(
    serve, command, tmp_path: Path, answer: Any, label: str
) -> None:
    good, bad = serve(), serve()
    bad.answer = answer
    # What is too large comes as fast as it can; a time that it might not reach would say the same as a slow machine.
    timeout = "30" if label == "too large" else "0.5"
    files = ("--json", tmp_path / "r.json", "--svg", tmp_path / "r.svg")

    ran = command("bench", good.url, bad.url, *SHORT, "--requests", "2", "--warmup", "0", "--timeout", timeout, *files)

    assert ran.code == exit_codes.FAILED
    servers = json.loads((tmp_path / "r.json").read_text())["servers"]
    assert servers[0]["answered"] == 2
    assert {kind: error["count"] for kind, error in servers[1]["errors"].items()} == {label: 2}
    assert label in ran.out
    for said in (ran.out, ran.err, (tmp_path / "r.svg").read_text(), (tmp_path / "r.json").read_text()):
        assert "\x1b" not in said
        assert "\u202e" not in said
    assert len(bad.heads) == 3


def test_server_that_is_not_there_is_told_at_once(command) -> None:
    ran = command("bench", "http://127.0.0.1:9")

    assert ran.code == exit_codes.UNREACHABLE
    assert "http://127.0.0.1:9/v1 did not list its models" in ran.err


def test_server_that_wants_a_key_says_where_to_name_it(serve, command, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, opened = serve(), serve()
    monkeypatch.setenv("SOME_KEY", "sk-of-one")

    ran = command("bench", closed.url, opened.url, *SHORT, "--requests", "1", "--key", "env:SOME_KEY", "--key", "none")

    assert ran.code == exit_codes.OK
    assert all(b"authorization: Bearer sk-of-one" in head for head in closed.heads)
    assert not any(b"authorization" in head for head in opened.heads)
    assert "sk-of-one" not in ran.out + ran.err


def test_nothing_is_sent_beyond_this_machine_without_yes(serve, command) -> None:
    server = serve()

    ran = command("bench", server.url, "http://192.0.2.1:8000", "--requests", "7")

    assert ran.code == exit_codes.CONFIG
    assert "http://192.0.2.1:8000/v1: not on this machine" in ran.err
    assert "up to 7 requests" in ran.err
    assert "--yes" in ran.err
    assert server.heads == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--requests", "0"], "--requests: 0 is out of bounds"),
        (["--answer-tokens", "many"], "--answer-tokens: 'many' is not a length"),
        (["--rate", "5", "--clients", "2"], "exclude each other"),
        (["--tools", "--api", "completions"], "--tools needs --api chat"),
        (["--json", "/nowhere/r.json"], "'/nowhere/r.json' can't be written"),
        (["--trace", "/nowhere/t"], "'/nowhere/t' can't be read"),
        (["--key", "sk-12345"], "never a key itself"),
        (["--preset", "everything"], "'everything' is unknown: expected one of formats, crossover"),
        (["--preset", "timed", "--turns", "1"], "--preset and --turns exclude each other"),
        (["--preset", "timed", "--prompt-tokens", "200"], "--preset and --prompt-tokens exclude each other"),
        (["--preset", "timed", "--whole"], "--preset and --whole exclude each other"),
        (["http://127.0.0.1:1#protobuf", "--preset", "loop"], "frames are always streamed, and have no text"),
        (["--json", "r", "--svg", "r"], "the same file"),
        (["http://127.0.0.1:1#protobuf", "--turns", "2"], "frames are always streamed, and have no text"),
    ],
)
def test_what_can_not_be_done_is_said_before_anything_is_asked(serve, command, words: list[str], said: str) -> None:
    server = serve()

    ran = command("bench", server.url, *words)

    assert ran.code == exit_codes.CONFIG
    assert said in ran.err
    assert "sk-12345" not in ran.err
    assert server.heads == []


def test_each_address_may_name_what_its_answers_are_compressed_with(serve, command) -> None:
    one, other = serve(), serve()
    one.answer = HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(GOOD.partition(b"\r\n\r\n")[2])

    ran = command("bench", f"{one.url}#json,gzip", other.url, *SHORT, "--accept-encoding", "identity")

    assert ran.code == exit_codes.OK, ran.err
    assert [b"accept-encoding: gzip\r\n" in each.heads[-1] for each in (one, other)] == [True, False]
    assert f"{one.url}/v1#json,gzip" in ran.out


@pytest.mark.parametrize("named", ["sha256:" + "0" * 64, "sha256:../x", "x y"])
def test_dictionary_that_is_not_to_be_had_is_counted(serve, command, named: str) -> None:
    server = serve()
    server.answer = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-encoding: zstd\r\nconnection: close\r\n"
        + f"codec-zstd-dict: {named}\r\n\r\n".encode()
        + b"(\xb5/\xfd"
    )

    ran = command("bench", f"{server.url}#protobuf,zstd", *SHORT, "--requests", "2", "--warmup", "0")

    assert ran.code == exit_codes.FAILED
    assert "2 x not an answer" in ran.out
    # By its hash, and never by another name.
    asked = [head.split()[1] for head in server.heads if b"/dicts/" in head]
    assert asked == [f"/.well-known/codec/dicts/{'0' * 64}.zstd".encode()] * (2 if named.endswith("0") else 0)


def test_servers_that_were_asked_something_else_are_not_told_to_say_the_same(serve, command) -> None:
    one, other = serve(), serve()

    ran = command("bench", one.url, other.url, *SHORT, "--requests", "3", "--apart")

    assert "1.0" in ran.out.partition("request by request")[2]
    assert "of 3" not in ran.out


def test_nothing_is_compared_where_nobody_answered(serve, command) -> None:
    one, other = serve(), serve()
    one.answer = other.answer = whole("500 Internal Server Error", b"{}")

    ran = command("bench", one.url, other.url, *SHORT, "--requests", "2")

    assert "2 x http 500" in ran.out
    assert "request by request" not in ran.out


def test_processor_time_is_that_of_the_processes_that_listen(serve, command, tmp_path: Path) -> None:
    one, other = serve(), serve()

    ran = command("bench", one.url, other.url, *SHORT, "--requests", "4", "--json", tmp_path / "r.json")

    # Both are threads of this process, and so is the command.
    assert ran.code == exit_codes.OK
    assert all(server["cpu_ms"] > 0 for server in json.loads((tmp_path / "r.json").read_text())["servers"])


def test_run_ends_with_its_time_and_says_what_was_cut_off(serve, command) -> None:
    server = serve()
    server.answer = _silent
    began = time.monotonic()

    ran = command("bench", server.url, *SHORT, "--seconds", "0.3", "--clients", "3", "--warmup", "0")

    assert time.monotonic() - began < 20
    assert ran.code == exit_codes.FAILED
    assert "3 requests were cut off by the end of the run" in ran.out


def test_ctrl_c_shows_what_there_is(serve, command, tmp_path: Path) -> None:
    server = serve()
    me = os.getpid()

    async def then_interrupt(writer: asyncio.StreamWriter) -> None:
        writer.write(GOOD)
        if len(server.bodies) == 4:
            os.kill(me, signal.SIGINT)
            await asyncio.sleep(30)  # noqa: TID251 - longer than anybody waits

    server.answer = then_interrupt
    ran = command("bench", server.url, *SHORT, "--warmup", "0", "--json", tmp_path / "r.json")

    assert ran.code == exit_codes.INTERRUPTED
    assert "the run was ended early" in ran.out
    assert 3 <= json.loads((tmp_path / "r.json").read_text())["servers"][0]["answered"] <= 4


def test_result_that_can_not_be_written_is_printed_all_the_same(serve, command, tmp_path: Path) -> None:
    server = serve()
    folder = tmp_path / "there"
    folder.mkdir()

    def gone(_writer: asyncio.StreamWriter) -> Awaitable[None]:
        folder.rmdir()
        server.answer = GOOD
        _writer.write(GOOD)
        return asyncio.sleep(0)  # noqa: TID251 - nothing more to do

    server.answer = gone
    ran = command("bench", server.url, *SHORT, "--requests", "1", "--json", folder / "r.json")

    assert ran.code == exit_codes.CONFIG
    assert "can't be written" in ran.err
    assert server.url in ran.out
