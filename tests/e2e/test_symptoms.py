"""Each symptom of docs/operate.md is brought about somewhere; those that no other test brings about, here."""

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from bench.processes import free_port
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.leaf.contract import CODEC_META_KEY

ROOT = Path(__file__).parents[2]
HERE = "tests/e2e/test_symptoms.py"
REPRODUCED = {
    "Exit 3: `can't listen on 127.0.0.1:8600`": "tests/e2e/test_bad_input.py::test_port_that_is_taken_ends_with_three",
    "Exit 3: `the map can't be found automatically`": f"{HERE}::test_model_that_can_not_be_read_here",
    "Exit 3: `the inherited socket 'faces' listens on ...`": f"{HERE}::test_public_socket_ends_the_start",
    "Exit 3: `names the gateway itself`": "tests/e2e/test_stdio.py::test_gateway_whose_configuration_names_itself",
    "503 `engine_unavailable`": "tests/e2e/test_bad_input.py::test_engine_that_is_not_there_leaves_mcp_open",
    "The log says `the model's file has no chat template`": (
        "tests/gateway/engine/test_chat_template.py::test_model_without_a_template_is_reported"
    ),
    "503 `map_differs`": "tests/e2e/test_bad_input.py::test_map_of_another_tokenizer_closes_the_engine",
    "400 `template_refused`": f"{HERE}::test_template_that_refuses_a_conversation",
    "401": "tests/e2e/test_bad_input.py::test_address_beyond_loopback_asks_for_the_token",
    "403": "tests/e2e/test_mcp_http.py::test_page_of_another_site_is_refused",
    "421": "tests/e2e/test_hosts.py::test_every_spelling_of_loopback_is_let_in_and_every_other_name_refused",
    "429 `rate_limit_exceeded`": "tests/e2e/test_access.py::test_rate_of_a_key_is_held_over_real_http",
    "404 on `/mcp`": f"{HERE}::test_session_that_ended_is_not_there",
    "503 on `/mcp`": f"{HERE}::test_session_over_the_limit_is_told_to_come_later",
    "A tool is missing": "tests/e2e/test_bad_input.py::test_server_that_ends_at_its_start_stays_down_and_says_why",
    "One tool of an HTTP server is missing": (
        "tests/gateway/proxy/test_tool_headers_http.py::test_report_and_checkup_name_the_tool"
    ),
    "A server declares nothing": (
        "tests/gateway/proxy/test_malformed_lists.py::test_server_that_declares_no_lists_is_asked_for_each_of_them_once"
    ),
    "A server's lists are malformed": (
        "tests/gateway/proxy/test_malformed_lists.py::test_malformed_tool_is_mended_or_left_out"
    ),
    "A tool can't be used as it is defined": (
        "tests/gateway/agent/test_unrendered_tools.py::test_warning_names_whose_tool_it_is_the_tool_and_the_reason"
    ),
    "A tool is missing for one caller": "tests/e2e/test_access.py::test_key_sees_its_servers_and_tools",
    "Results of a leaf count as `shim`": f"{HERE}::test_leaf_of_another_map",
    "A bolt-on is called with text": "tests/gateway/cli/test_bolt_ons.py::test_report_of_a_running_gateway_holds_them",
    "`reuse` is below 1": f"{HERE}::test_conversation_whose_slot_was_taken",
    "An answer ends with `length`": "tests/e2e/test_openai.py::test_length_limit_ends_the_answer_and_is_named",
    "`codec-gateway health` ends with 4": f"{HERE}::test_health_of_a_gateway_that_is_not_there",
    "Unready, and the log says nothing": f"{HERE}::test_probe_says_why_a_gateway_is_unready",
    "The service `model` ends: `has the sha256 ...`": "tests/deploy/test_packages.py::test_model_that_is_another_stops",
    "The service `model` ends: `put the model's GGUF file there`": (
        "tests/deploy/test_packages.py::test_model_that_nobody_carries_is_asked_for"
    ),
    "The service `time-leaf` ends with 3": "tests/tools/test_time_leaf.py::test_a_map_that_can_not_be_had_stops",
}
"""By the page's headings: the beginning of the test's name, in its file."""

QUESTION = [{"role": "user", "content": "What is it?"}]
TWICE = [*QUESTION, *QUESTION]
SAY = {"type": "function", "function": {"name": "say"}}
GREEDY = {"model": "any", "temperature": 0, "seed": 1, "max_tokens": 40}
STRICT = (
    "{% set seen = namespace(role='') @ %}{% for m in messages %}{% if m.role == 'user' and seen.role == 'user' %}"
    "{{ raise_exception('two questions in a row') }}{% endif %}{% set seen.role = m.role %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The model's chat template, but that it refuses two questions in a row; room for padding where the @ stands."""
EXEC_AS_ACTIVATED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="faces")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def headings() -> list[str]:
    """The symptoms that the page names."""
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    section = page.partition("\n## Troubleshooting\n")[2].partition("\n## ")[0]
    return re.findall(r"(?m)^### (.+)$", section)


def test_every_symptom_of_the_page_has_its_test() -> None:
    assert headings() == list(REPRODUCED)


@pytest.mark.parametrize("reproduced", REPRODUCED.values(), ids=REPRODUCED)
def test_test_of_a_symptom_is_there(reproduced: str) -> None:
    path, _, beginning = reproduced.partition("::")
    nodes = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    names = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    assert len([name for name in names if name.startswith(beginning)]) == 1


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """One command of ours, to its end."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **more)


def with_template(model: Path, template: str, target: Path) -> Path:
    """A copy of a GGUF file with another chat template, which may not be longer: a string has its length before it."""
    shutil.copyfile(model, target)
    with target.open("r+b") as file:
        head = file.read(16_000_000)
        start = head.index(b"{% for message")
        room = int.from_bytes(head[start - 8 : start], "little") - (len(template) - 1)
        file.seek(start)
        file.write(template.replace("@", " " * room).encode())
    return target


@pytest.fixture(scope="module")
def strict_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """llama.cpp with one slot and a template that refuses; its model's file is gone when it has been loaded."""
    folder = tmp_path_factory.mktemp("strict")
    model = with_template(packaged_model(), STRICT, folder / "strict.gguf")
    settings = {"model": str(model), "host": "127.0.0.1", "port": 0, "context": 2048, "slots": 1, "threads": 1}
    command = [sys.executable, "-m", "gateway.engine.embedded.child_process", json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        url = child.stdout.readline().decode().strip()
        model.unlink()
        yield url
        child.kill()


def test_model_that_can_not_be_read_here_ends_the_start_with_three_and_the_ways_out(strict_engine, tmp_path):
    done = run("-m", "gateway", "serve", "--port", "0", "--admin-port", "0", "--engine", strict_engine, cwd=tmp_path)

    assert done.returncode == 3
    assert "the map can't be found automatically: the engine's model" in done.stderr
    assert all(flag in done.stderr for flag in ("--map PATH", "--model PATH", "--map none"))
    assert "Traceback" not in done.stderr


def test_template_that_refuses_a_conversation_is_400_with_its_own_words(strict_engine, start_gateway, map_file):
    gateway = start_gateway({}, "--engine", strict_engine, "--map", str(map_file))
    with gateway.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(messages=TWICE, **GREEDY)
        answer = client.chat.completions.create(messages=QUESTION, **{**GREEDY, "max_tokens": 2})

    assert refused.value.code == "template_refused"
    assert "two questions in a row" in refused.value.message
    assert answer.usage.completion_tokens == 2


def test_conversation_whose_slot_was_taken_by_another_reuses_less(
    strict_engine, start_gateway, server, map_file, tmp_path
):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    gateway = start_gateway(
        {"up": server("waits", GATE=str(gate))},
        *("--engine", strict_engine, "--map", str(map_file)),
        env={"CODEC_GATEWAY_LIMITS__TURNS": "2"},
    )
    with gateway.client() as client, ThreadPoolExecutor(1) as aside:
        answer = aside.submit(client.chat.completions.create, messages=QUESTION, tool_choice=SAY, **GREEDY)
        # It can be opened when the tool has been called: the first turn is over, the second one waits for the result.
        with gate.open("w") as result:
            other = [{"role": "user", "content": "Tell me about the sea."}]
            client.chat.completions.create(messages=other, tool_choice="none", **GREEDY)
            result.write("It is 42.\n")
        first, second = answer.result(60).model_dump()["codec"]["turns"]

    assert first["reuse"] is None
    assert second["reuse"] < 0.9
    assert gateway.metric("codec_generation_prompt_ids_total") > first["prompt_n"]


def test_public_socket_ends_the_start_with_three_where_the_settings_say_loopback(tmp_path):
    with socket.create_server(("0.0.0.0", 0)) as public:
        number = public.fileno()
        serve = ["-m", "gateway", "serve", "--port", "0", "--admin-port", "0"]
        done = run("-c", EXEC_AS_ACTIVATED, str(number), *serve, pass_fds=[number], cwd=tmp_path)

    assert done.returncode == 3
    assert "the inherited socket 'faces' listens on 0.0.0.0" in done.stderr
    assert "set serve.host to '0.0.0.0'" in done.stderr


def ask(gateway: Any, method: str, params: dict[str, Any], **headers: str) -> httpx2.Response:
    """One request of 2025-11-25."""
    accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx2.post(f"{gateway.url}/mcp", json=body, headers={**accept, **headers}, timeout=240)


def initialize(gateway: Any) -> httpx2.Response:
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return ask(gateway, "initialize", about)


def test_session_that_ended_is_not_there_and_the_next_one_is(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway({})
    session = {"Mcp-Session-Id": initialize(gateway).headers["mcp-session-id"]}
    before = ask(gateway, "ping", {}, **session).status_code
    httpx2.delete(f"{gateway.url}/mcp", headers=session)
    after = ask(gateway, "ping", {}, **session).status_code
    again = {"Mcp-Session-Id": initialize(gateway).headers["mcp-session-id"]}

    assert (before, after) == (200, 404)
    assert ask(gateway, "ping", {}, **again).status_code == 200


def test_session_over_the_limit_is_told_to_come_later(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway({}, env={"CODEC_GATEWAY_SERVE__MAX_SESSIONS": "1"})
    first = initialize(gateway)
    over = initialize(gateway)
    httpx2.delete(f"{gateway.url}/mcp", headers={"Mcp-Session-Id": first.headers["mcp-session-id"]})

    assert (first.status_code, over.status_code) == (200, 503)
    assert initialize(gateway).status_code == 200


def test_leaf_of_another_map_is_tokenized_here_and_the_log_says_why_once(start_gateway, says, map_file, model_map):
    ids = {"map_id": "sha256:" + "c" * 64, "ids": [1, 2]}
    gateway = start_gateway(
        {"up": says({"type": "text", "text": "hello", "_meta": {CODEC_META_KEY: ids}})}, "--map", str(map_file)
    )
    named = {"X-Codec-Map": model_map.map_id, "Mcp-Session-Id": initialize(gateway).headers["mcp-session-id"]}
    answers = [ask(gateway, "tools/call", {"name": "say", "arguments": {}}, **named) for _ in range(2)]
    gateway.log.wait_for("are refused")
    said = gateway.log.events("are refused")

    assert [str(model_map.encode("hello")).replace(" ", "") in answer.text for answer in answers] == [True, True]
    assert [(entry["tool"], entry["reason"]) for entry in said] == [("say", "map")]
    assert gateway.metric("codec_shim_tokenize_calls_total") == 2
    assert gateway.metric("codec_map_mismatches_total") == 2


def test_health_of_a_gateway_that_is_not_there_is_four() -> None:
    done = run("-m", "gateway", "health", f"http://127.0.0.1:{free_port()}")

    assert done.returncode == 4
    assert done.stderr.startswith("nothing answers at 'http://127.0.0.1:")


def test_probe_says_why_a_gateway_is_unready(start_gateway: Callable[..., Any], map_file: Path) -> None:
    engine = f"http://127.0.0.1:{free_port()}"
    gateway = start_gateway({}, "--engine", engine, "--map", str(map_file))
    done = run("-m", "gateway.cli.probe", gateway.admin)

    assert done.returncode == 1
    assert done.stderr.startswith("not ready: ")
    assert engine in done.stderr
