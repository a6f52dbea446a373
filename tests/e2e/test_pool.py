"""Two embedded engines as one, as an operator starts them: one is killed, and clients see what the page says."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import openai
import pytest

from tests.e2e.conftest import ran

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

SMALL = """
[engines.desk]
kind = "embedded"
context = 2048
slots = 1
aliases = ["tiny"]

[engines.attic]
kind = "embedded"
context = 2048
slots = 1
"""


@pytest.fixture
def gateway(start_gateway: Callable[..., Any], tmp_path: Any) -> Any:
    (tmp_path / "codec-gateway.toml").write_text(SMALL)
    return start_gateway({})


def pids(gateway: Any) -> dict[str, int]:
    """Of the engines that were started last."""
    return {entry["engine"]: entry["pid"] for entry in gateway.log.events("engine ready")}


def busy(gateway: Any) -> list[str]:
    return [name for name in ("desk", "attic") if gateway.metric("codec_pool_engine_answers", engine=name)]


def test_an_answer_whose_engine_is_killed_goes_on_over_http(gateway: Any) -> None:
    reason, codec = None, {}
    with gateway.client() as client:
        stream: Iterator[Any] = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Tell me a long story."}], max_tokens=120, stream=True
        )
        for number, chunk in enumerate(stream):
            codec = (chunk.model_extra or {}).get("codec") or codec
            for choice in chunk.choices:
                reason = choice.finish_reason or reason
            # At the first words: a client that a busy machine keeps from reading finds the answer over.
            if number == 2:
                (name,) = busy(gateway)
                os.kill(pids(gateway)[name], signal.SIGKILL)

    assert reason in {"stop", "length"}
    (turn,) = codec["turns"]
    assert turn["moved"] == 1
    assert turn["generated"] == 120 or reason == "stop"
    assert gateway.metric("codec_pool_answers_moved_total", engine=name, at="middle") == 1
    assert gateway.metric("codec_chat_requests_total", outcome="ok") == 1
    status, report = gateway.readiness()
    assert (status, report["components"]["engine"]) == (200, True)
    # It is started again by itself, and proven.
    gateway.log.wait_for("engine ready", count=3)
    assert all(each["up"] for each in gateway.readiness()[1]["engines"].values())
    assert gateway.metric("codec_pool_engine_answers") == 0


def test_with_all_engines_gone_answers_end_by_name_and_come_back(gateway: Any) -> None:
    with gateway.client() as client:
        stream = client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": "Tell me a long story."}],
            max_tokens=400,
            temperature=0,
            stream=True,
        )
        for _ in range(10):
            next(stream)
        for pid in pids(gateway).values():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(openai.APIError) as caught:
            list(stream)
        assert caught.value.code == "engine_unavailable"
        gateway.log.wait_for("engine ready", count=4)
        answer = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Hello"}], max_tokens=4
        )
    assert answer.choices[0].finish_reason == "length"


def test_status_shows_each_engine(gateway: Any) -> None:
    report = httpx2.get(f"{gateway.admin}/status").json()

    assert report["engine"]["kind"] == "pool"
    assert [(each["name"], each["up"], each["breaker"]) for each in report["engines"]] == [
        ("desk", True, "closed"),
        ("attic", True, "closed"),
    ]
    assert len({each["model"] for each in report["engines"]}) == 1
    page = ran("status", "--admin", gateway.admin)
    assert "desk: " in page
    assert "attic: " in page


def test_an_engine_that_never_comes_up_closes_nothing_but_itself(
    start_gateway: Callable[..., Any], tmp_path: Any
) -> None:
    lost = '[engines.lost]\nurl = "http://127.0.0.1:9"\n'
    (tmp_path / "codec-gateway.toml").write_text(lost + SMALL.partition("[engines.attic]")[0])
    gateway = start_gateway({})

    with gateway.client() as client:
        answer = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "Hello"}], max_tokens=4
        )

    assert answer.choices[0].finish_reason == "length"
    engines = gateway.readiness()[1]["engines"]
    assert (engines["lost"]["up"], engines["desk"]["up"]) == (False, True)
    report = httpx2.get(f"{gateway.admin}/status").json()
    assert "nothing listens at" in next(each["reason"] for each in report["engines"] if each["name"] == "lost")


def test_engines_n_starts_so_many(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway({}, "--engines", "2")
    gateway.log.wait_for("engine ready", count=2)

    assert set(pids(gateway)) == {"engine-1", "engine-2"}
