"""More tools than the model's context could hold, on a real engine: a greeting is answered, and it is said why."""

import re

import httpx2
import pytest

from .conftest import clean_environment
from .forked import run_forked

TAKEN = re.compile(r"the definitions of all tools take about (\d+) tokens of a context of (\d+)")
GREEDY = {"model": "any", "temperature": 0, "seed": 1}


@pytest.fixture(scope="module")
def gateway(run_gateway, tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("many")
    with run_gateway(folder, {"work": server("many")}, "--engine", "embedded") as started:
        yield started, folder


def said_by(folder, *words: str) -> str:
    """What a command prints beside the gateway, with the same configuration."""
    return run_forked(words, folder, clean_environment({"CODEC_GATEWAY_ENGINE__KIND": "embedded"})).stdout


def test_greeting_is_answered_beside_183_tools(gateway):
    started, _ = gateway
    with started.client() as client:
        answer = client.chat.completions.create(messages=[{"role": "user", "content": "Hello"}], max_tokens=8, **GREEDY)
    context = httpx2.get(f"{started.admin}/status").json()["engine"]["context"]

    assert answer.choices[0].finish_reason in ("stop", "length")
    assert 0 < answer.usage.prompt_tokens < context / 4


def test_model_is_given_what_a_search_among_them_finds(gateway):
    started, _ = gateway
    earlier = {"name": "codec_search_tools", "arguments": '{"query": "mail", "limit": 1}'}
    messages = [
        {"role": "user", "content": "Find a tool for the mail."},
        {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": earlier}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "mail_action_2"},
        {"role": "assistant", "content": "It is mail_action_2."},
        {"role": "user", "content": "Find one for that."},
    ]
    search = {"type": "function", "function": {"name": "codec_search_tools"}}
    with started.client() as client:
        answer = client.chat.completions.create(messages=messages, tool_choice=search, max_tokens=200, **GREEDY)
    answer = answer.model_dump()

    (result, *_) = answer["codec"]["tool_results"]
    assert (result["name"], result["is_error"]) == ("codec_search_tools", False)
    assert '"name": "mail_action_' in result["text"]


def test_model_is_given_what_the_words_of_its_user_suggest(gateway):
    started, _ = gateway
    with started.client() as client:
        answer = client.chat.completions.create(
            messages=[{"role": "user", "content": "Which mail action is the second one?"}], max_tokens=8, **GREEDY
        )

    (note,) = (each for each in answer.model_dump()["codec"]["diagnostics"] if each["kind"] == "deferred")
    assert "the user's words suggest mail_action_" in note["message"]


def test_log_status_and_doctor_say_that_definitions_take_more_than_a_quarter_of_the_context(gateway):
    started, folder = gateway
    report = httpx2.get(f"{started.admin}/status").json()
    logged = started.log.wait_for("the definitions of all tools take")
    said = {
        "log": logged["event"],
        "report": report["definition_advice"],
        "status": said_by(folder, "status", "--admin", started.admin),
        "doctor": said_by(folder, "doctor", "--config", "mcp.json"),
    }
    figures = {who: tuple(map(int, TAKEN.search(" ".join(words.split())).groups())) for who, words in said.items()}

    assert logged["level"] == "warning"
    assert {context for _, context in figures.values()} == {report["engine"]["context"]}
    assert all(tokens * 4 > context for tokens, context in figures.values())
    # The log is written before they are counted, and `doctor` names each server's tools after it.
    assert figures["report"] == figures["status"]
