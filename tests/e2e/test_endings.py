"""How things end: clients that leave, an engine that is killed, a gateway that is asked to stop."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

STORY = [{"role": "user", "content": "Write a long story about a dragon."}]
LONG = {"model": "any", "temperature": 0, "seed": 1, "tool_choice": "none", "max_tokens": 3000}
SHORT = {**LONG, "max_tokens": 3}
ONE_SLOT = {"CODEC_GATEWAY_ENGINE__SLOTS": "1", "CODEC_GATEWAY_ENGINE__CONTEXT": "4096"}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, run_gateway) -> Iterator[Any]:
    """A gateway whose embedded engine generates one answer at a time."""
    with run_gateway(tmp_path_factory.mktemp("narrow"), {}, "--engine", "embedded", env=ONE_SLOT) as gateway:
        yield gateway


def text_of(chunk: Any) -> str:
    return chunk.choices[0].delta.content or "" if chunk.choices else ""


def first_words(stream: Any) -> str:
    """Reads until the model has written something."""
    return next(text for chunk in stream if (text := text_of(chunk)))


def test_client_that_leaves_in_the_middle_frees_the_engine_for_the_next(narrow):
    with narrow.client() as client:
        with client.chat.completions.create(messages=STORY, stream=True, **LONG) as stream:
            first_words(stream)
        answer = client.chat.completions.create(messages=STORY, timeout=20, **SHORT)

    assert answer.choices[0].finish_reason == "length"
    assert narrow.metric("codec_chat_requests_total", outcome="cancelled") == 1


def test_client_that_leaves_while_it_waits_for_a_whole_answer_frees_the_engine_too(narrow):
    with narrow.client() as client:
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(messages=STORY, timeout=0.5, **LONG)
        answer = client.chat.completions.create(messages=STORY, timeout=20, **SHORT)

    assert answer.choices[0].finish_reason == "length"


def test_engine_killed_in_the_middle_is_told_to_the_client_and_started_again(narrow):
    restarts = len(narrow.log.events("engine ready"))
    with narrow.client() as client:
        with client.chat.completions.create(messages=STORY, stream=True, **LONG) as stream:
            first_words(stream)
            os.kill(narrow.engine_pid(), signal.SIGKILL)
            with pytest.raises(openai.APIError) as broken:
                list(stream)
        narrow.log.wait_for("engine ready", count=restarts + 1)
        answer = client.chat.completions.create(messages=STORY, timeout=20, **SHORT)

    assert broken.value.code == "engine_unavailable"
    assert "the engine" in broken.value.message
    assert answer.choices[0].finish_reason == "length"
    assert narrow.readiness()[0] == 200
    assert narrow.process.poll() is None
    assert narrow.log.events("engine down")
    assert "Traceback" not in narrow.log.text


def test_stop_lets_a_running_answer_finish_refuses_new_ones_and_leaves_nothing_behind(
    start_gateway, server, is_running, tmp_path
):
    notes = tmp_path / "notes"
    servers = {"up": server("notes_pid", NOTES=str(notes))}
    # As long as a busy machine takes for an answer of 120 tokens.
    gateway = start_gateway(servers, "--engine", "embedded", env={"CODEC_GATEWAY_LIMITS__DRAIN": "240"})
    children = [int(notes.read_text()), gateway.engine_pid()]
    assert all(map(is_running, children))
    with gateway.client() as client:
        with client.chat.completions.create(messages=STORY, stream=True, **{**LONG, "max_tokens": 120}) as stream:
            first_words(stream)
            gateway.process.terminate()
            gateway.log.wait_for("stopping")
            late = httpx2.post(f"{gateway.url}/v1/chat/completions", json={"messages": STORY})
            status, report = gateway.readiness()
            reasons = [choice.finish_reason for chunk in stream for choice in chunk.choices]
        code = gateway.process.wait(30)

    assert late.status_code == 503
    assert late.headers["retry-after"]
    assert (status, report["draining"]) == (503, True)
    assert reasons[-1] == "length"
    assert code == 0
    assert gateway.log.events("stopped")[0]["requests_cut"] == 0
    assert not any(map(is_running, children))
    assert "Traceback" not in gateway.log.text


def test_second_signal_ends_a_running_answer_at_once(start_gateway, is_running):
    gateway = start_gateway({}, "--engine", "embedded")
    engine = gateway.engine_pid()
    with gateway.client() as client, client.chat.completions.create(messages=STORY, stream=True, **LONG) as stream:
        first_words(stream)
        gateway.process.send_signal(signal.SIGINT)
        gateway.log.wait_for("stopping")
        gateway.process.send_signal(signal.SIGINT)
        code = gateway.process.wait(30)
        with pytest.raises((openai.APIError, httpx2.HTTPError)):
            list(stream)

    assert code == 0
    assert not is_running(engine)
    assert "Traceback" not in gateway.log.text


def test_ctrl_c_ends_an_idle_gateway_without_a_traceback(start_gateway, tells_time):
    gateway = start_gateway({"plain_time": tells_time})
    gateway.process.send_signal(signal.SIGINT)

    assert gateway.process.wait(30) == 0
    assert "Traceback" not in gateway.log.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_the_start_leaves_nothing_behind(launch, server, is_running, tmp_path, number):
    notes = tmp_path / "notes"
    with launch({"up": server("notes_pid", NOTES=str(notes))}, "--engine", "embedded") as (process, log):
        log.wait_for("upstream is up")
        process.send_signal(number)
        code = process.wait(30)
        log.close()

    assert code == (130 if number == signal.SIGINT else 0)
    assert log.events("stopped while starting")
    assert not log.events("gateway ready")
    assert "Traceback" not in log.text
    assert not is_running(int(notes.read_text()))
